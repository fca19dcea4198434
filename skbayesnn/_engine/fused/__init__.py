"""Training on a GPU: many steps of a network in one Triton program.

``kernel`` is the program, ``run`` prepares its arguments. It trains the perceptrons
that fit, with the random numbers of the other engines.
"""
