"""The stages put together: what a run does with a model, from reading it to the result that holds.

    given -> rewrite (neighbours) -> staged file -> parity -> what failed is left out, again

given        the forms in which a model is given and given back
rewrite      find, lower, fold, guard; neighbours: what norms take in of their neighbours;
             rewritten: what comes of it
lowerings    which lowering a site gets, where that is not left to the target; tuning: by measuring them
run          the stages in their order, and the report
illustrate   what a report for people has on top: pictures and, by timing and without, the latency
"""
