"""`normfuse explain CODE`: what a reason code means; without one, all of them."""

from __future__ import annotations

from normfuse.cli.options import Code
from normfuse.streams import writing


def explain(code: Code = None) -> int:
    """Say what a reason code means, with an example and what to do; without CODE, list them all."""
    from normfuse.report.printing import console
    from normfuse.report.reasons import print_page, print_reasons

    with writing():
        print_reasons(console()) if code is None else print_page(code, console())
    return 0
