"""Does a rewritten model still compute the same?

check     judges the rewrites between two models, one by one and together; compares any two models (`verify`)
locate    finds where two models begin to differ
given     reads the inputs that the user has
settings  what a check is asked to do        verdict   what it concludes

Nothing is imported here: a run that verifies nothing needs the plain data of the last two alone.
"""
