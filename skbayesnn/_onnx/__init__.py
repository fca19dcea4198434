"""Export the predictive distribution of a fitted model as an ONNX graph."""
