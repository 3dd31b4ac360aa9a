"""ONNX graphs: their recurrent nodes and loops as subjects, read with bounds on memory and time."""
