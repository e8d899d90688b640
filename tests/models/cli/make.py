# make.py: writes the model of the tests of the command line. Needs onnx and numpy.
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

F, I = TensorProto.FLOAT, TensorProto.INT64
value, node = helper.make_tensor_value_info, helper.make_node
weight = numpy_helper.from_array(np.sin(0.7 * np.arange(12)).reshape(4, 3).astype("f"), "w")

# Several outputs: floats, whole numbers, two single numbers; an input that nothing reads.
nodes = [
    node("MatMul", ["x", "w"], ["y"]),
    node("Relu", ["x"], ["z"]),
    node("ArgMax", ["y"], ["k"], axis=1),
    node("ReduceMean", ["y"], ["mean"], keepdims=0),
    node("ReduceSum", ["y"], ["total"], keepdims=0),
]
inputs = [value("x", F, ["n", 4]), value("u", F, ["n", 9])]
outputs = [value("y", F, ["n", 3]), value("z", F, ["n", 4]), value("k", I, ["n", 1])]
outputs += [value("mean", F, []), value("total", F, [])]
graph = helper.make_graph(nodes, "several", inputs, outputs, [weight])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
save(model, "several.onnx")
