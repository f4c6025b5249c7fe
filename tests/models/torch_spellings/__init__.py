"""What exporters write: a small torch module for each spelling of a normalization, exported in every way.

table           what must come of each module, and in how many ways it is exported (needs no torch)
samples         what every module needs: random parameters, example inputs, neighbours
layer_norms, rms_norms, spatial_norms, batch_norms      the modules
exporting       one module in one way, with a cache on disk
comparing       a comparison that is independent of normfuse's own
outcome         what came of one export: as asked, refused with a reason, missed, or wrong
exceptions      the exports that do not end as asked, named one by one

python -m torch_spellings            the table of outcomes, with tests/models on the path
"""
