"""What exporters write: one small torch module for each way to spell a normalization, and every way to export it.

    spelling        the record of one module: family, what must come of it, how many sites it holds
    layer_norms, rms_norms, spatial_norms, batch_norms      the modules
    registry        all of them by name
    exporting       Way (exporter, opset, dtype, dynamic), the grid of ways, and a cache on disk
    outcome         what came of one export: as asked, refused with a reason, missed, or wrong
    comparing       the comparison that says so, independent of normfuse's own

    python -m torch_spellings            the table of outcomes, with tests/models on the path
"""
