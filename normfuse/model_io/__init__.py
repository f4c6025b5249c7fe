"""Read and write ONNX models of any size, without losing anything and without reading what is not needed.

    with_out = stage(source.model, source, out)     temporary files beside `out`, which a runtime can load
    with_out.commit()                               renamed into place, only after parity holds

Weights in external data files stay on disk: a model of 14 GB costs the memory of its graph.
"""

from normfuse.model_io.collection import no_collection
from normfuse.model_io.output import Placement
from normfuse.model_io.read import from_bytes, from_ir, from_proto, read
from normfuse.model_io.source import Source
from normfuse.model_io.stage import Staged, copy_unchanged, original, stage

__all__ = [
    "Placement",
    "Source",
    "Staged",
    "copy_unchanged",
    "from_bytes",
    "from_ir",
    "from_proto",
    "no_collection",
    "original",
    "read",
    "stage",
]
