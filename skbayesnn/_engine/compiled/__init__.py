"""Training and predictions of perceptrons on a CPU in compiled loops (numba).

``loop`` is the training of one member, composed of the small functions in
``activations``, ``families`` and ``likelihoods``; ``run`` decides which programs it
covers, and trains their members on threads. ``predict`` computes posterior draws: its
``plan`` lists the operations, on ``blocks`` of rows. The results equal those of torch's
engine up to rounding. Import the modules only where they are used: numba takes .3 s to
import.
"""

# Environment variable: "torch" forbids the compiled loops.
ENGINE_VARIABLE = "SKBAYESNN_ENGINE"
