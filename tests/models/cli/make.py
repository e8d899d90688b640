# make.py: writes the models of the tests of the command line. Needs onnx and numpy.
import numpy as np
from onnx import TensorProto, helper, numpy_helper, parser, save

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

# A classifier as scikit-learn's converter writes it: features scaled, a bias of one number, labels that are text.
CLASSIFIER = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 1], producer_name: "skl2onnx">
classifier (float[N, 4] X) => (string[N] label, seq(map(string, float)) probability)
<float[4, 3] coefficient = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.125, -0.5, 1.0, 0.75, 0.25, -0.125},
 float[1, 3] intercept = {0.25, -0.5, 0.125}, float[3, 1] coefficient1 = {1.0, -0.75, 0.5}, float[1, 1] intercept1 = {-0.25},
 float one = {1}, string[2] classes = {"no", "yes"}, int64[1] line = {-1}>
{
  scaled = ai.onnx.ml.Scaler<offset = [0.5, 0.0, -0.5, 0.25], scale = [1.0, 2.0, 0.5, 1.0]>(X)
  product = MatMul(scaled, coefficient)
  sum = Add(product, intercept)
  hidden = Relu(sum)
  product1 = MatMul(hidden, coefficient1)
  sum1 = Add(product1, intercept1)
  yes = Sigmoid(sum1)
  no = Sub(one, yes)
  both = Concat<axis = 1>(no, yes)
  place = ArgMax<axis = 1>(both)
  labels = ai.onnx.ml.ArrayFeatureExtractor(classes, place)
  label = Reshape(labels, line)
  probability = ai.onnx.ml.ZipMap<classlabels_strings = ["no", "yes"]>(both)
}"""
save(parser.parse_model(CLASSIFIER), "classifier.onnx")

# No input: a table of numbers that the file holds.
GIVEN = """<ir_version: 8, opset_import: ["": 17]>
given () => (float[3] y) <float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>
{
  s = ReduceSum<keepdims = 0>(w)
  r = ReduceMax<axes = [1], keepdims = 0>(w)
  y = Mul(r, s)
}"""
save(parser.parse_model(GIVEN), "given.onnx")
