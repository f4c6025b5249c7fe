"""The report for people: one HTML file that needs nothing else, no network and no script.

    template (page/report.html.j2) + style (page/report.css) + one view for each model (view.py)

Everything that comes from a model is escaped by the template; the page forbids scripts by itself as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec

from normfuse.errors import UsageError
from normfuse.report.fleet import Outcome
from normfuse.report.text import plural, printable

_NEEDED = ("jinja2", "matplotlib")


def require() -> None:
    """Raise UsageError where what draws the page is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"an HTML report needs {' and '.join(missing)}", hint="pip install 'normfuse[report]'"
        )


def to_html(outcomes: Sequence[Outcome]) -> str:
    """The page of one model, or of several.

    Raises UsageError where jinja2 or matplotlib is not installed.
    """
    require()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from normfuse import __version__
    from normfuse.report.view import view_of

    folder = files("normfuse.report").joinpath("page")
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = page.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    title = printable(outcomes[0].model) if len(outcomes) == 1 else plural(len(outcomes), "model")
    return template.render(
        title=f"normfuse: {title}",
        version=__version__,
        css=Markup(folder.joinpath("report.css").read_text("utf-8")),
        models=[view_of(outcome, f"m{number}") for number, outcome in enumerate(outcomes)],
    )
