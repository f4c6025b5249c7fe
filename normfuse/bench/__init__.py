"""What is faster here? Latency of models side by side, where the time goes, and the choice between lowerings.

benchmark <- latency   the models in one process, the first a second time as its own control
             profile   the time of each operator, from onnxruntime's profile
             running   sessions at the level of deployment, ready to run
             turns     contenders take turns, so that what the machine does it does to all
             ratios    from paired times to a ratio with an interval; when one is faster beyond it

tuning    <- tune      the lowerings of each distinct site, measured
             candidates, fingerprint   sites cut out of rewritten models; which of them are equal
             choosing  the default, unless another is faster beyond the spread
             plan_file choices as JSON, to repeat a build
"""
