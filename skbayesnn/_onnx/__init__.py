"""A fitted model -> an ONNX graph of its predictive, one file per part of the graph."""
