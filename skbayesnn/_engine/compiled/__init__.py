"""Training of perceptrons on a CPU in one compiled loop (numba), without torch.

``loop`` is the training of one member, composed of the small functions in
``activations``, ``families`` and ``likelihoods``; ``run`` decides which programs it
covers, and trains their members on threads. The results equal those of torch's engine
up to rounding. Import the modules only where they are used: numba takes .3 s to import.
"""
