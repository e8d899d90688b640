"""closure.py: writes closure.onnx, the network that burgers.f90 trains. Needs onnx; the example needs only the file."""
import numpy
from onnx import TensorProto, helper, numpy_helper, save

draw = numpy.random.RandomState(5)
sizes = [2, 16, 16, 1]
nodes, weights = [], []
for k, (m, n) in enumerate(zip(sizes, sizes[1:])):
    weight = draw.randn(n, m) / m ** 0.5
    weights += [numpy_helper.from_array(weight.astype("f4"), f"{k}.weight"),
                numpy_helper.from_array(numpy.zeros(n, "f4"), f"{k}.bias")]
    last = k + 2 == len(sizes)
    nodes.append(helper.make_node("Gemm", [f"h{k}" if k else "x", f"{k}.weight", f"{k}.bias"], ["y" if last else f"a{k}"],
                                  f"/{k}/Gemm", transB=1))
    if not last:
        nodes.append(helper.make_node("Tanh", [f"a{k}"], [f"h{k + 1}"], f"/{k}/Tanh"))
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["cells", n]) for name, n in (("x", 2), ("y", 1))]
graph = helper.make_graph(nodes, "closure", values[:1], values[1:], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "closure.onnx")
