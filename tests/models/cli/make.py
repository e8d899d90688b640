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

# Linear models as it writes them: their weights are attributes, scaled features come before, and labels are text or integers.
LINEAR = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 1], producer_name: "skl2onnx">
linear (float[N, 2] X) => (string[N] label, float[N, 3] probability, int64[N] number, float[N, 3] score, float[N, 1] y)
<float[2] Mu_Mulcst = {2.0, 0.5}, float[2] Ad_Addcst = {-1.0, 0.25}>
{
  large = Mul(X, Mu_Mulcst)
  scaled = Add(large, Ad_Addcst)
  [classes] words, each = ai.onnx.ml.LinearClassifier<classlabels_strings = ["a", "b", "c"], post_transform = "LOGISTIC",
    coefficients = [0.5, -1.5, 2.0, 0.25, -1.0, 0.75], intercepts = [0.5, -1.0, 0.25]>(scaled)
  label = Identity(words)
  probability = ai.onnx.ml.Normalizer<norm = "L1">(each)
  [numbers] number, score = ai.onnx.ml.LinearClassifier<classlabels_ints = [4, 2, 7],
    coefficients = [0.5, -1.5, 2.0, 0.25, -1.0, 0.75], intercepts = [0.5, -1.0, 0.25]>(scaled)
  [values] y = ai.onnx.ml.LinearRegressor<coefficients = [0.5, -1.5], intercepts = [0.125]>(scaled)
}"""
save(parser.parse_model(LINEAR), "linear.onnx")

# No input: a table of numbers that the file holds.
GIVEN = """<ir_version: 8, opset_import: ["": 17]>
given () => (float[3] y) <float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>
{
  s = ReduceSum<keepdims = 0>(w)
  r = ReduceMax<axes = [1], keepdims = 0>(w)
  y = Mul(r, s)
}"""
save(parser.parse_model(GIVEN), "given.onnx")

# Doubles: numbers that f32 cannot hold, in an input, weights and a constant; one beside floats; one that can be trained.
DOUBLE = """<ir_version: 8, opset_import: ["": 17]>
double (double[n, 3] x) => (double[n, 2] y, double[n, 3] z, double[n, 3] step)
<double[3, 2] w = {0.1, 1e300, 0.3, 2.0, 1e-300, -0.7}, double[3] s = {1e200, 0.1, 3.3333333333333333}>
{
  y = MatMul(x, w)
  tiny = Constant<value = double[1] {1e-200}>()
  product = Mul(x, s)
  z = Mul(product, tiny)
  small = Constant<value = double[1] {1e-12}>()
  near = Add(x, small)
  step = Sub(near, x)
}"""
save(parser.parse_model(DOUBLE), "double.onnx")
INSIDE = """<ir_version: 8, opset_import: ["": 17]>
inside (float[n, 3] x) => (float[n, 3] y)
{
  large = Constant<value = double[1] {1e200}>()
  wide = Cast<to = 11>(x)
  product = Mul(wide, large)
  same = Div(product, large)
  y = Cast<to = 1>(same)
}"""
save(parser.parse_model(INSIDE), "double_inside.onnx")
LEARNT = """<ir_version: 8, opset_import: ["": 17]>
learnt (double[n, 4] x) => (double[n, 2] y) <double[4, 2] w = {0.1, 0.2, 0.3, -0.1, 0.7, -0.7, 0.05, -0.3}, double[2] b = {0.1, 1.0}>
{
  product = MatMul(x, w)
  y = Add(product, b)
}"""
save(parser.parse_model(LEARNT), "double_learnt.onnx")

# Integers of every width, and a float: what data may hold.
INTS = """<ir_version: 8, opset_import: ["": 17]>
widths (uint8[n] a, int8[n] b, int32[n] c, uint64[n] d, float[n] x) => (uint8[n] aa, int8[n] bb, int32[n] cc, uint64[n] dd, int32[n] xx)
{
  aa = Add(a, a)
  bb = Mul(b, b)
  cc = Add(c, c)
  dd = Add(d, d)
  xx = Cast<to = 6>(x)
}"""
save(parser.parse_model(INTS), "widths.onnx")

# Nodes whose result is of another float type than their inputs, declared as what it is.
MIXED = """<ir_version: 8, opset_import: ["": 20]>
mixed (float[2, 4] x, float16[2, 4] h) => (float16[2, 4] a, float16[2, 4] b, double[4, 4] c, float16[2, 4] d, uint8[2, 4] q)
<float16[1] like = {1}, float16[4] gain = {1, 1, 1, 1}>
{
  a = Scan<num_scan_inputs = 1, body = rows (float[4] row) => (float16[4] out) { out = Cast<to = 10>(row) }>(x)
  b = CastLike(x, like)
  c = EyeLike<dtype = 11>(k)
  d, mean, deviation = LayerNormalization(h, gain)
  k = MatMul(t, x)
  t = Transpose(x)
  q, scale, zero = DynamicQuantizeLinear(x)
}"""
model = parser.parse_model(MIXED)
model.graph.value_info.extend(value(name, F, None) for name in ("mean", "deviation", "scale", "k"))
save(model, "mixed.onnx")

# An embedding whose transposed copy makes the logits, an output of two parts, and an initializer that two biases share.
TIED = """<ir_version: 8, opset_import: ["": 17]>
tied (int64[n] words) => (float[n, 5] logits, float[n, 2] one, float[n, 2] two)
<float[5, 4] "a.module.of.a.long.name.that.no.terminal.shows.embedding.weight" = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0},
 float[4, 5] "onnx::MatMul_7" = {0.1, 0.5, 0.9, 1.3, 1.7, 0.2, 0.6, 1.0, 1.4, 1.8, 0.3, 0.7, 1.1, 1.5, 1.9, 0.4, 0.8, 1.2, 1.6, 2.0},
 float[4, 2] "one.weight" = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}, float[4, 2] "two.weight" = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.9},
 float[2] "one.bias" = {0, 0}>
{
  rows = Gather("a.module.of.a.long.name.that.no.terminal.shows.embedding.weight", words)
  logits = MatMul(rows, "onnx::MatMul_7")
  p = MatMul(rows, "one.weight")
  q = MatMul(rows, "two.weight")
  one = Add(p, "one.bias")
  two = Add(q, "one.bias")
}"""
save(parser.parse_model(TIED), "tied.onnx")

# Attention whose scores are hidden, as masked_fill and as where are exported, with a bias inside.
HIDDEN = """<ir_version: 8, opset_import: ["": 17]>
hidden (float[2, 3, 4] q, float[2, 3, 4] k, float[2, 3, 4] v, float[1, 3, 3] bias, bool[2, 1, 3] keep) => (float[2, 3, 4] y, float[2, 3, 4] z)
<float scale = {0.5}, float least = {-3.4e38}>
{
  turned = Transpose<perm = [0, 2, 1]>(k)
  products = MatMul(q, turned)
  scores = Mul(products, scale)
  shown = Where(keep, scores, least)
  weights = Softmax<axis = 2>(shown)
  y = MatMul(weights, v)
  hide = Not(keep)
  biased = Add(scores, bias)
  filled = Where(hide, least, biased)
  others = Softmax<axis = 2>(filled)
  z = MatMul(others, v)
}"""
save(parser.parse_model(HIDDEN), "hidden.onnx")

# Losses near 0, as a trained classifier has them, and functions that take small numbers; `one` holds ones.
SMALL = """<ir_version: 8, opset_import: ["": 17]>
small (float[4, 3] one) => (float[4] loss, float logged, float[4, 3] plus, float[4, 3] elu, float[4, 1] rest)
<float[4, 3] table = {30, 17.9, 10, 9.25, -2.8, -3, 1000.125, 988, 980, -50, -62.125, -63},
 float[4, 3] low = {-16, -20, -1e-6, -1e-3, -5, -10, 1e-5, -30, -60, 0.5, 1e-7, -0.25},
 int64[4] labels = {0, 0, 0, 0}, int64[1] axis = {1}>
{
  x = Mul(one, table)
  t = Mul(one, low)
  loss = SoftmaxCrossEntropyLoss<reduction = "none">(x, labels)
  p = Softmax<axis = 1>(x)
  logs = Log(p)
  logged = NegativeLogLikelihoodLoss(logs, labels)
  plus = Softplus(t)
  elu = Elu(t)
  sums = ReduceLogSumExp<axes = [1], keepdims = 1>(x)
  most = ReduceMax<axes = [1], keepdims = 1>(x)
  rest = Sub(sums, most)
}"""
save(parser.parse_model(SMALL), "small.onnx")

# Indices that the model computes: of every operator that has some, in a branch and in a loop.
INDICES = """<ir_version: 8, opset_import: ["": 17]>
indices (int64[3] at, int64[3, 2] pairs, int64[2, 2] each, int64[3] labels, bool yes, bool[3] kept)
  => (float[3, 2] rows, float[3] picked, float[2, 2] elements, float[4, 2] written, float[4, 2] added, float loss,
      float[3, 2] branch, float[120, 2] trips, float[n, 2] some)
<float[4, 2] table = {0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}, int64 one = {1}, float[3, 2] ones = {1, 1, 1, 1, 1, 1},
 float[2, 2] fours = {4, 4, 4, 4}, int64 four = {4}, int64[1] times = {40}>
{
  next = Add(at, one)
  rows = Gather(table, next)
  nexts = Add(pairs, one)
  picked = GatherND(table, nexts)
  others = Add(each, one)
  elements = GatherElements<axis = 0>(table, others)
  written = ScatterElements<axis = 0>(table, others, fours)
  added = ScatterND<reduction = "add">(table, nexts, picked)
  classes = Sub(labels, one)
  loss = SoftmaxCrossEntropyLoss<ignore_index = -101>(rows, classes)
  branch = If(yes) <
    then_branch = then () => (float[3, 2] a) { more = Add(next, one)  a = Gather(table, more) },
    else_branch = otherwise () => (float[3, 2] b) { b = Identity(ones) }>
  many = Tile(at, times)
  trips = Scan<num_scan_inputs = 1, body = body (int64 i) => (float[2] row) { j = Sub(i, four)  row = Gather(table, j) }>(many)
  compressed = Compress<axis = 0>(next, kept)
  last = Add(compressed, one)
  some = Gather(table, last)
}"""
save(parser.parse_model(INDICES), "indices.onnx")

# A loop without end of its own: sums rows of two tables, from one to the next, until `stop`.
WALK = """<ir_version: 8, opset_import: ["": 17]>
walk (int64 stop, int64 pace) => (float[2] sum)
<float[4, 2] table = {0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}, float[6, 2] other = {1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6},
 int64 zero = {0}, int64 three = {3}, bool yes = {1}, float[2] none = {0, 0}>
{
  sum, last = Loop<body = body (int64 i, bool on, float[2] s, int64 j) => (bool go, float[2] t, int64 k) {
    row = Gather(table, j)
    m = Add(j, three)
    beside = Gather(other, m)
    both = Add(row, beside)
    t = Add(s, both)
    k = Add(j, pace)
    go = Less(k, stop)
  }>("", yes, none, zero)
}"""
save(parser.parse_model(WALK), "walk.onnx")

# A loop of as many iterations as an input says.
TURNS = """<ir_version: 8, opset_import: ["": 17]>
turns (int64 turns, float[2] x, float[2] pace) => (float[2] y)
<bool yes = {1}>
{
  y = Loop<body = body (int64 i, bool on, float[2] v) => (bool go, float[2] next) {
    go = Identity(on)
    more = Mul(v, pace)
    next = Add(more, pace)
  }>(turns, yes, x)
}"""
save(parser.parse_model(TURNS), "turns.onnx")

# Rows that the data choose, and an index into those.
KEPT = """<ir_version: 8, opset_import: ["": 17]>
kept (bool[4] keep, int64[2] at) => (float[2, 2] rows, float[2] second)
<float[4, 2] table = {0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}, int64 one = {1}>
{
  some = Compress<axis = 0>(table, keep)
  rows = Gather(some, at)
  second = Gather(some, one)
}"""
save(parser.parse_model(KEPT), "kept.onnx")

# Integers of 64 bits without sign, whose upper half is beyond int64, where operators see the difference.
UNSIGNED = """<ir_version: 8, opset_import: ["": 18]>
unsigned (uint64[2] x, float[2] large)
  => (uint64[2] n, float[2] as_float, uint64[2] from_float, bool[2] less, uint64[2] difference, uint64[2] half, uint64[2] max,
      uint64[2] quotient, uint64[2] rest, uint64[2] clipped, uint64[1] most, uint64[1] least,
      int64[1] arg_most, int64[1] arg_least, uint64[1] top, int64[1] top_at, uint64[2] size, uint64[2] sign,
      uint64[2] scattered, int64[1] least_whole)
<uint64[1] one = {1}, uint64[1] three = {3}, uint64 limit = {9223372036854775807}, int64[1] k = {1},
 int64[2] places = {0, 1}, int64[3] whole = {1, -9223372036854775808, 2}>
{
  n = BitwiseNot(x)
  as_float = Cast<to = 1>(n)
  from_float = Cast<to = 13>(large)
  less = Less(x, n)
  difference = Sub(x, n)
  half = BitShift<direction = "RIGHT">(n, one)
  max = Max(x, n)
  quotient = Div(n, three)
  rest = Mod(n, three)
  clipped = Clip(n, "", limit)
  both = Concat<axis = 0>(x, n, three)
  most = ReduceMax(both)
  least = ReduceMin(n)
  arg_most = ArgMax<axis = 0>(both)
  arg_least = ArgMin<axis = 0>(both)
  top, top_at = TopK<axis = 0>(both, k)
  size = Abs(n)
  sign = Sign(n)
  scattered = ScatterElements<axis = 0, reduction = "max">(x, places, n)
  least_whole = ArgMin<axis = 0>(whole)
}"""
save(parser.parse_model(UNSIGNED), "unsigned.onnx")

# An input that says a shape: its numbers are needed when the file is read.
STAND = """<ir_version: 8, opset_import: ["": 18]>
stand (float[1] x, int64[2] shape, uint64[1] times) => (float[a, b] y)
{
  more = Cast<to = 7>(times)
  wide = Concat<axis = 0>(more, shape)
  z = Expand(x, wide)
  one = Constant<value = int64[1] {0}>()
  y = ReduceSum<keepdims = 0>(z, one)
}"""
save(parser.parse_model(STAND), "stand.onnx")

# Doubles that f32 cannot hold, beside floats: their product can be held.
BEYOND = """<ir_version: 8, opset_import: ["": 17]>
beyond (float[n, 3] x) => (float[n, 2] y) <float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, double large = {1e300}>
{
  small = Constant<value = double {1e-300}>()
  one = Mul(large, small)
  scale = Cast<to = 1>(one)
  z = Mul(x, scale)
  y = MatMul(z, w)
}"""
save(parser.parse_model(BEYOND), "beyond.onnx")

# Whole numbers over a number whose reciprocal is rounded: a quotient that is whole, or halfway, must come out so.
QUOTIENTS = """<ir_version: 8, opset_import: ["": 18]>
quotients (float[200] x) => (float wrong, float mean, int64 total)
<float number = {41}, float zero = {-1}, float scale = {1.2}, int64[1] first = {0}, int64[1] last = {41}>
{
  quotient = Div(x, number)
  floor = Floor(quotient)
  x_whole = Cast<to = 7>(x)
  number_whole = Cast<to = 7>(number)
  exact = Div(x_whole, number_whole)
  exact_floor = Cast<to = 1>(exact)
  difference = Sub(floor, exact_floor)
  size = Abs(difference)
  wrong = ReduceSum<keepdims = 0>(size)
  some = Slice(x, first, last)
  all = Greater(some, zero)
  ones = Cast<to = 1>(all)
  mean = ReduceMean<keepdims = 0>(ones)
  steps = QuantizeLinear(x, scale)
  steps_whole = Cast<to = 7>(steps)
  total = ReduceSum<keepdims = 0>(steps_whole)
}"""
save(parser.parse_model(QUOTIENTS), "quotients.onnx")

# A remainder with the sign of the number that is divided, and a function that is small near 0.
REMAINDERS = """<ir_version: 8, opset_import: ["": 18]>
remainders (float[n] x, float[n] y) => (float[n] rest, float[n] small)
{
  rest = Mod<fmod = 1>(x, y)
  small = Sinh(x)
}"""
save(parser.parse_model(REMAINDERS), "remainders.onnx")

# A convolution without a bias, as PyTorch's newer exporter writes it in three dimensions: with zeros of two columns.
NO_BIAS = """<ir_version: 8, opset_import: ["": 18]>
no_bias (float[n, 1, 2, 2, 2] x) => (float[n, 3, 1, 1, 1] y)
<float[3, 1, 2, 2, 2] w = {1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0},
 int64[1] columns = {2}, float[1] zero = {0}>
{
  rows = Shape<start = 0, end = 1>(w)
  sizes = Concat<axis = 0>(rows, columns)
  zeros = Expand(zero, sizes)
  y = Conv(x, w, zeros)
}"""
save(parser.parse_model(NO_BIAS), "no_bias.onnx")

# Products long enough, and values between them large enough, to be rounded by --precision bf16.
def wave(name, *shape):
    count = int(np.prod(shape))
    return numpy_helper.from_array((np.sin(1.3 * np.arange(count)) / shape[0] ** 0.5).reshape(shape).astype("f"), name)
nodes = [
    node("MatMul", ["x", "w1"], ["a"]),
    node("LayerNormalization", ["a", "scale", "bias"], ["h"]),
    node("Relu", ["h"], ["r"]),
    node("MatMul", ["r", "w2"], ["b"]),
    node("Add", ["b", "h"], ["s"]),
    node("MatMul", ["s", "w3"], ["logits"]),
]
weights = [wave("w1", 40, 96), wave("w2", 96, 96), wave("w3", 96, 5),
           numpy_helper.from_array(np.ones(96, "f"), "scale"), numpy_helper.from_array(np.zeros(96, "f"), "bias")]
graph = helper.make_graph(nodes, "products", [value("x", F, ["n", 40])], [value("logits", F, ["n", 5])], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "products.onnx")

# A residual block of convolutions with batch statistics, on 64 channels.
nodes = [
    node("Conv", ["x", "kernel0"], ["a"], pads=[1, 1, 1, 1]),
    node("Conv", ["a", "kernel1"], ["b"]),
    node("BatchNormalization", ["b", "gain", "offset", "mean", "var"], ["c", "mean_now", "var_now"], training_mode=1),
    node("Add", ["c", "a"], ["d"]),
    node("Relu", ["d"], ["e"]),
    node("GlobalAveragePool", ["e"], ["f"]),
    node("Flatten", ["f"], ["g"]),
    node("MatMul", ["g", "head"], ["logits"]),
]
weights = [wave("kernel0", 64, 3, 3, 3), wave("kernel1", 64, 64, 1, 1), wave("head", 64, 5),
           *(numpy_helper.from_array(np.full(64, x, "f"), name)
             for name, x in (("gain", 1), ("offset", 0), ("mean", 0), ("var", 1)))]
graph = helper.make_graph(nodes, "channels", [value("x", F, ["n", 3, 16, 16])], [value("logits", F, ["n", 5])], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "channels.onnx")

# A head per rate, chosen by an input; the heads differ in size.
RATES = """<ir_version: 8, opset_import: ["": 17]>
rates (float[n, 4] x, int64 rate) => (float[n, k] y)
<float[4, 3] low = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.125, -0.5, 1.0, 0.75, 0.25, -0.125},
 float[4, 2] high = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.125, -0.5}, int64 eight = {8}>
{
  is_low = Equal(rate, eight)
  y = If (is_low) <
    then_branch = lows () => (float[n, 3] a) { a = MatMul(x, low) },
    else_branch = highs () => (float[n, 2] b) { b = MatMul(x, high) }
  >
}"""
save(parser.parse_model(RATES), "rates.onnx")

# Weights as files hold them: of every float type, in raw_data or a typed field; two parameters in one initializer, one in
# two; an LSTM; dropout and batch statistics of training.
def stored(name, kind, count, raw, *shape):
    x = np.sin(0.9 * np.arange(count)).reshape(shape)
    kinds = {TensorProto.FLOAT: "f", TensorProto.DOUBLE: "d", TensorProto.FLOAT16: "e"}
    if kind == TensorProto.BFLOAT16:
        bits = (x.astype("f").view("u4") >> 16).astype("u2")
        if raw:
            return helper.make_tensor(name, kind, shape, bits.tobytes(), raw=True)
        t = TensorProto(name=name, data_type=kind, dims=shape)
        t.int32_data.extend(bits.flatten().tolist())
        return t
    x = x.astype(kinds[kind])
    if raw:
        return numpy_helper.from_array(x, name)
    if kind == TensorProto.FLOAT16:
        t = TensorProto(name=name, data_type=kind, dims=shape)
        t.int32_data.extend(x.view("u2").flatten().tolist())
        return t
    return helper.make_tensor(name, kind, shape, x.flatten().tolist())


weights, nodes = [], [node("Identity", ["x"], ["h0"])]
for i, (kind, raw) in enumerate((kind, raw) for kind in (F, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16) for raw in (0, 1)):
    weights += [stored(f"w{i}", kind, 16, raw, 4, 4)]
    nodes += [node("Cast", [f"w{i}"], [f"v{i}"], to=F), node("MatMul", [f"h{i}", f"v{i}"], [f"m{i}"]), node("Tanh", [f"m{i}"], [f"h{i + 1}"])]
weights += [numpy_helper.from_array(np.zeros(4, "f"), "a.bias"), stored("scale", F, 4, 1, 4), stored("mean", F, 4, 1, 4),
            numpy_helper.from_array(np.ones(4, "f"), "var"), stored("lstm.w", F, 64, 1, 1, 16, 4), stored("lstm.r", F, 64, 1, 1, 16, 4),
            stored("lstm.b", F, 32, 1, 1, 32), stored("idle", F, 9, 1, 9), numpy_helper.from_array(np.array(0.5, "f"), "ratio"),
            numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.array([0]), "axis")]
nodes += [
    node("Identity", ["a.bias"], ["b.bias"]),
    node("Add", ["h8", "a.bias"], ["p"]),
    node("Relu", ["p"], ["q"]),
    node("Add", ["q", "b.bias"], ["r"]),
    node("BatchNormalization", ["r", "scale", "b.bias", "mean", "var"], ["n", "mean_now", "var_now"], training_mode=1),
    node("Dropout", ["n", "ratio", "yes"], ["d"]),
    node("Unsqueeze", ["d", "axis"], ["steps"]),
    node("LSTM", ["steps", "lstm.w", "lstm.r", "lstm.b"], ["all", "last"], hidden_size=4),
    node("Squeeze", ["last"], ["y"]),
]
graph = helper.make_graph(nodes, "stored", [value("x", F, [8, 4])], [value("y", F, [8, 4])], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "stored.onnx")

# A weight of 8 bits.
eight = TensorProto(name="w", data_type=17, dims=[4, 4], raw_data=bytes([0x38, 0x30, 0xB8, 0x34] * 4))
nodes = [node("Cast", ["w"], ["v"], to=F), node("MatMul", ["x", "v"], ["h"]), node("MatMul", ["h", "u"], ["y"])]
graph = helper.make_graph(nodes, "eight", [value("x", F, [8, 4])], [value("y", F, [8, 4])], [eight, wave("u", 4, 4)])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), "eight.onnx")

# Columns of an input are indices of tables of different length.
COLUMNS = """<ir_version: 8, opset_import: ["": 17]>
columns (int64[n, 2] x) => (float[n, 2] y)
<float[3, 2] a = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[4, 2] b = {0.125, 1.0, -0.5, 0.25, 1.5, -0.75, 0.0, 0.5},
 int64 first = {0}, int64 second = {1}>
{
  i = Gather<axis = 1>(x, first)
  j = Gather<axis = 1>(x, second)
  u = Gather(a, i)
  v = Gather(b, j)
  y = Add(u, v)
}"""
save(parser.parse_model(COLUMNS), "columns.onnx")

# A straight-through estimator, whose gradients cancel in ONNX.
STRAIGHT = """<ir_version: 8, opset_import: ["": 17]>
straight (float[n, 2] x) => (float[n, 2] y)
<float[2, 2] first = {0.5, -0.25, 0.75, -1.0}, float[2, 2] last = {0.125, 1.0, -0.5, 0.25}>
{
  z = MatMul(x, first)
  q = Round(z)
  d = Sub(q, z)
  s = Add(z, d)
  y = MatMul(s, last)
}"""
straight = parser.parse_model(STRAIGHT)
for one in straight.graph.node:
    one.name = "/" + one.op_type
save(straight, "straight.onnx")

# The logarithmic buckets of T5: 8 lies where one ends.
BUCKETS = """<ir_version: 8, opset_import: ["": 17]>
buckets (float[n, 6] x) => (float[n, 6] y)
<float[6] table = {0.5, -0.25, 0.75, -1.0, 0.125, 1.0}, int64[6] distance = {8, 4, 6, 9, 12, 13},
 float exact = {4.0}, float span = {1.3862943649291992}>
{
  f = Cast<to = 1>(distance)
  r = Div(f, exact)
  l = Log(r)
  s = Div(l, span)
  m = Mul(s, exact)
  b = Cast<to = 7>(m)
  bias = Gather(table, b)
  y = Add(x, bias)
}"""
save(parser.parse_model(BUCKETS), "buckets.onnx")

# A weight that a Constant node holds, which is not trained; `shift` is no weight.
CONSTANTS = """<ir_version: 8, opset_import: ["": 17]>
constants (float[n, 3] x) => (float[n, 2] y) <float[2] b = {0.1, 0.2}>
{
  w = Constant<value = float[3, 2] {0.1, 0.2, 0.3, -0.1, 0.7, -0.7}>()
  shift = Constant<value = float[1, 3] {0.5, 0.5, 0.5}>()
  centered = Sub(x, shift)
  product = MatMul(centered, w)
  y = Add(product, b)
}"""
save(parser.parse_model(CONSTANTS), "constants.onnx")

# Two inputs of one symbolic size; an input of f16; labels that are floats; weights in Constant nodes of a function, a
# branch and behind a Transpose.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
shared (float[n, 4] a, float[n, k] b, float[n, k] c) => (float[n, 4] y, float[n, k] z) { y = Relu(a)
  z = Add(b, c) }"""), "shared.onnx")
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
half (float16[n, 4] a) => (float16[n, 4] y) <float16[4] w = {15360, 15360, 15360, 15360}> { y = Mul(a, w) }"""), "half.onnx")
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
labels (float[n, 3] x, float[n] labels) => (float loss) <float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>
{
  y = MatMul(x, w)
  cut = Cast<to = 7>(labels)
  loss = SoftmaxCrossEntropyLoss(y, cut)
}"""), "float_labels.onnx")
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "own": 1]>
nested (float[n, 3] x, bool c) => (float[n, 2] y) <float[3, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.5, 1, 2}>
{
  h = MatMul(x, w)
  f = own.linear(h)
  i = own.linear(x)
  t = Constant<value = float[2, 3] {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>()
  turned = Transpose(t)
  g = MatMul(h, turned)
  b = If(c) <then_branch = yes () => (float[n, 2] p)
    { v = Constant<value = float[3, 2] {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>()
      p = MatMul(h, v) }, else_branch = no () => (float[n, 2] q) { q = Identity(f) }>
  y = Sum(f, g, b, i)
}
<domain: "own", opset_import: ["": 17]>
linear (x) => (y)
{
  u = Constant<value = float[3, 2] {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>()
  y = MatMul(x, u)
}"""), "nested.onnx")

# Parameters that operators choose, bound and raise to: a token of masked rows, a bound and an exponent, which is read twice; no
# parameters are a mask and an unnamed bound.
LEARNED = """<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
learned (float[n, 3] x, int64[n, 1] m) => (float[n, 3] y)
<float[1, 3] token = {0.5, -0.25, 0.75}, float bound = {0.25}, float[1] p = {3}, float[3] hidden = {0, -1e9, 0},
 float MAX = {-2}>
{
  c = Cast<to = 9>(m)
  z = Where(c, token, x)
  low = Where(c, z, hidden)
  kept = Max(low, MAX)
  a = Max(kept, bound)
  b = Pow(a, p)
  y = Div(b, p)
}"""
model = parser.parse_model(LEARNED)
model.graph.initializer[-1].name = model.graph.node[3].input[1] = "onnx::Max_9"
save(model, "learned.onnx")

# Of two elements, any are two values: those of a mask are 0 and 1.
PAIRS = """<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
pairs (float[n, 2] x, int64[n, 1] m) => (float[n, 2] y)
<float[2] pair = {0.5, -0.25}, float[2] mask = {0, 1}>
{
  c = Cast<to = 9>(m)
  z = Where(c, pair, x)
  y = Max(z, mask)
}"""
save(parser.parse_model(PAIRS), "pairs.onnx")

# As PyTorch's newer exporter describes it: a product of a buffer and a parameter, and a token.
CALLED = """<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
called (float[n, 3] x, int64[n, 1] m) => (float[n, 3] y)
<float[3, 2] table = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[2, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25},
 float[1, 3] token = {0.1, 0.2, 0.3}>
{
  c = Cast<to = 9>(m)
  t = MatMul(table, w)
  z = Where(c, token, x)
  y = MatMul(z, t)
}"""
model = parser.parse_model(CALLED)
for n, call in zip(model.graph.node[1:], ["matmul.default](args = (%b_table, %p_w)", "where.self](args = (%c, %p_token, %x)"]):
    n.metadata_props.add(key="pkg.torch.onnx.fx_node", value="%v : call_function[target=torch.ops.aten." + call + ", kwargs = {})")
signature = "# inputs\np_w: PARAMETER target='w'\np_token: PARAMETER target='token'\nb_table: BUFFER target='table' persistent=True\n"
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
for name, kind in (("w", "PARAMETER"), ("token", "PARAMETER"), ("table", "BUFFER")):
    v = model.graph.value_info.add(name=name)
    v.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=kind)
save(model, "called.onnx")

# A straight-through estimator as PyTorch's newer exporter describes it; the optimizer left out the detached Identity. A constant
# that the exporter detached in place is none.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
detached (float[n, 3] x) => (float[n, 2] y)
<float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}>
{
  z = MatMul(x, w)
  q = Round(z)
  d = Sub(q, z)
  y = Add(z, d)
}""")
for n, args in ((model.graph.node[1], "%matmul, %detach_"), (model.graph.node[3], "%matmul, %detach_1")):
    n.metadata_props.add(key="pkg.torch.onnx.fx_node", value="%v : call_function[target=t](args = (" + args + "), kwargs = {})")
save(model, "detached.onnx")

# What is left of detach(), output by output: its Identity; an argument of two nodes; the second of the arguments of addmm, which
# Gemm has in another order; one whose twin is not detached; an argument after one that has another name in the file. `doubtful`
# reads two values that no argument explains; `merged` reads the result of a call that was found equal to another, and `twice` one of the same kind without detach() in
# the file.
FORMS = """<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
detached_forms (float[n, 2] x) => (float[n, 2] identity, float[n, 2] two_nodes, float[n, 2] addmm, float[n, 2] twin,
                                   float[n, 2] renamed, float[n, 2] doubtful, float[n, 2] merged, float[n, 2] twice)
<float[2, 2] a = {0.5, -0.25, 0.75, -1.0}, float[2, 2] b = {0.25, 0.5, -0.5, 1.0}, float[2] bias = {0.1, -0.2}, float[1] half = {0.5}>
{
  p = MatMul(x, a)
  q = MatMul(x, b)
  detach = Identity(p)
  identity = Mul(detach, q)
  difference = Sub(q, p)
  two_nodes = Mul(difference, half)
  addmm = Gemm(p, b, bias)
  twin = Mul(p, p)
  renamed = Mul(q, p)
  scaled = Mul(p, half)
  doubtful = Mul(scaled, q)
  tanh = Tanh(p)
  merged = Mul(tanh, tanh)
  linear = Gemm(x, b, bias)
  twice = Add(linear, linear)
}"""
CALLS = {
    "p": "matmul.default](args = (%x, %p_a)", "q": "matmul.default](args = (%x, %p_b)", "detach": "detach.default](args = (%p,)",
    "identity": "mul.Tensor](args = (%detach, %q)", "difference": "f](args = (%q, %detach_1)", "two_nodes": "f](args = (%q, %detach_1)",
    "addmm": "addmm.default](args = (%p_bias, %detach_2, %p_b)", "twin": "mul.Tensor](args = (%p, %detach_3)",
    "renamed": "mul.Tensor](args = (%clone, %detach_4)", "scaled": "g](args = (%detach_5, %clone)", "doubtful": "g](args = (%detach_5, %clone)",
    "tanh": "tanh](args = (%detach_6,)", "merged": "mul.Tensor](args = (%tanh, %tanh_1)",
    "linear": "linear.default](args = (%x, %p_b, %p_bias)", "twice": "add.Tensor](args = (%linear, %linear_1)",
}
model = parser.parse_model(FORMS)
for n in model.graph.node:
    call = CALLS[n.output[0]]
    own = {"difference": "two_nodes", "scaled": "doubtful"}.get(n.output[0], n.output[0])
    call = f"%{own} : call_function[target=torch.ops.aten.{call}, kwargs = {{}})"
    n.metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
signature = "# inputs\n" + "".join(f"p_{w}: PARAMETER target='{w}'\n" for w in ("a", "b", "bias"))
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
save(model, "detached-forms.onnx")

# InstanceNorm with running statistics, in training mode, as PyTorch's older exporter writes it: BatchNormalization of opset 9, in a
# file of opset 17.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
older_norm (float[1, 2, 4] x) => (float[1, 2, 4] y)
<float[2] weight = {1.5, -0.5}, float[2] bias = {0.25, 0.5}, float[2] running_mean = {0.1, 0.2}, float[2] running_var = {0.8, 1.2}>
{
  y, mean, var, mean1, var1 = BatchNormalization<epsilon = 0.00001, momentum = 0.9>(x, weight, bias, running_mean, running_var)
}"""), "older_norm.onnx")

# Elements that a mask in the data selects are set: to three values, and to as many as another mask selects.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
masked (float[6] x, int64[6] m, int64[4] n) => (float[6] three, float[6] as_many)
<float[3] u = {0.5, -0.25, 0.75}, float[4] v = {1.0, 2.0, 3.0, 4.0}>
{
  place = NonZero(m)
  at = Transpose(place)
  three = ScatterND(x, at, u)
  other = NonZero(n)
  from = Transpose(other)
  w = GatherND(v, from)
  as_many = ScatterND(x, at, w)
}"""), "masked.onnx")

# Blocks that PyTorch's newer exporter traced by themselves, as those of torch.no_grad() and torch.autocast(): one reads a trained
# weight, one positions alone, and one what the user may detach.
BLOCKS = """<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
blocks (float[n, 2] x) => (float[n, 2] y)
<float[2, 2] a = {0.5, -0.25, 0.75, -1.0}, float[2, 2] b = {0.25, 0.5, -0.5, 1.0}, float[2, 2] c = {0.75, 0.25, -0.5, 0.125}>
{
  p = MatMul(x, a)
  q = MatMul(p, b)
  r = Relu(q)
  angle = Cos(x)
  turned = Mul(r, angle)
  y = MatMul(turned, c)
}"""
model = parser.parse_model(BLOCKS)
for n in model.graph.node:
    traced = {"q": "<eval_with_key>.42", "r": "<eval_with_key>.42", "angle": "<eval_with_key>.44"}.get(n.output[0], "/home/me/model.py")
    n.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "{traced}", line 5, in forward\n    relu = torch.relu(linear)')
save(model, "blocks.onnx")

# Of a torch.autograd.Function, the same exporter writes the forward alone: what it computes has its call in the stack trace, as has
# the layer whose result the same line passes to it.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
reversed (float[n, 2] x) => (float[n, 2] y)
<float[2, 2] a = {0.5, -0.25, 0.75, -1.0}>
{
  p = MatMul(x, a)
  view = Identity(p)
  y = Tanh(view)
}""")
line = 'File "/home/me/model.py", line 5, in forward\n    return torch.tanh(Reverse.apply(self.a(x)))'
for n, place in zip(model.graph.node, ("/lib/torch/nn/modules/linear.py", "/home/me/reverse.py", None)):
    trace = line + (f'\n  File "{place}", line 7, in forward\n    return x.view_as(x)' if place else "")
    n.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
save(model, "reversed.onnx")

# A recurrence whose state is cut off by --detach: the gradient of w is that of the last step.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
recurrence (float[3, 2, 2] x) => (float[2, 2] y)
<float[2, 2] w = {0.5, -0.25, 0.75, -1.0}, float[2, 2] start = {0.0, 0.0, 0.0, 0.0}>
{
  y = Scan <num_scan_inputs = 1, body = step (float[2, 2] h, float[2, 2] now) => (float[2, 2] next) {
    before = Identity(h)
    p = MatMul(before, w)
    s = Add(p, now)
    next = Tanh(s)
  }> (start, x)
}"""), "recurrence.onnx")

# Embeddings that pad with row 1, and without padding, as PyTorch's newer exporter describes them; the output matrix is the first.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
pads (int32[n, 2] words, int64[n] kinds) => (float[n, 2, 3] y)
<float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[2, 2] k = {0.5, -0.5, 1.0, 0.25}>
{
  rows = Gather(w, words)
  kind = Gather(k, kinds)
  axis = Constant<value_ints = [1]>()
  lines = Unsqueeze(kind, axis)
  sum = Add(rows, lines)
  turned = Transpose(w)
  y = MatMul(sum, turned)
}""")
for n, args in ((model.graph.node[0], "%p_w, %words, 1"), (model.graph.node[1], "%p_k, %kinds")):
    call = "%embedding : call_function[target=torch.ops.aten.embedding.default](args = (" + args + "), kwargs = {})"
    n.metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
save(model, "pads.onnx")

# A constant of the program that decides a size, by way of nodes that read no weight.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
sized (float[n, 3] x) => (float[n, 3] y)
<float[3] w = {0.5, -0.25, 0.75}, float[1] lifted = {3}, float[1] begin = {0}, int64 at = {1}, int64 zero = {0}, int64 one = {1}>
{
  copy = Identity(lifted)
  both = Concat<axis = 0>(begin, copy)
  last = Gather(both, at)
  end = Cast<to = 7>(last)
  range = Range(zero, end, one)
  floats = Cast<to = 1>(range)
  scaled = Mul(x, w)
  y = Add(scaled, floats)
}""")
for name in ("lifted", "begin"):
    v = model.graph.value_info.add(name=name)
    v.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="CONSTANT_TENSOR")
signature = "# inputs\np_w: PARAMETER target='w'\nc_lifted: CONSTANT_TENSOR target='lifted'\nc_begin: CONSTANT_TENSOR target='begin'\n"
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
save(model, "sized.onnx")

# What PyTorch's newer exporter folded from parameters and cannot stand for them: 1 / p of a p that the file has too, and a number
# that it repeated. exp stands for a parameter that the file lacks, t for its transposed matrix.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
folds (float[n, 3] x) => (float[n, 4] y)
<float[3, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.3}, float[1] p = {2}, float[1] reciprocal = {0.5}, float[2, 1] expand_1 = {0.3, 0.3},
 float[3] exp = {1.5, 0.5, 0.75}, float[3, 3] t = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.7}>
{
  hidden = MatMul(x, w)
  rates = Mul(hidden, exp)
  h = MatMul(rates, t)
  positive = Exp(h)
  power = Pow(positive, p)
  root = Pow(power, reciprocal)
  y = Concat<axis = 1>(root, expand_1)
}""")
signature = "# inputs\n" + "".join(f"p_{w}: PARAMETER target='{w}'\n" for w in ("w", "p", "time", "rate", "v"))
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
for name, leaves in (("reciprocal", "['p']"), ("expand_1", "['time', 'val_3']"), ("exp", "['rate']"), ("t", "['v']")):
    model.graph.value_info.add(name=name).metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=leaves)
save(model, "folds.onnx")

# A mixture of two signals, whose second weight it computed from the first: 1 minus it.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
blended (float[2, 3] x, float[2, 3] z) => (float[2, 3] y)
<float[1, 3] mix = {0.25, 0.125, 0.9375}, float[1, 3] sub = {0.75, 0.875, 0.0625}>
{
  one = Mul(x, mix)
  other = Mul(z, sub)
  y = Add(one, other)
}""")
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value="p_mix: PARAMETER target='mix'\n")
model.graph.value_info.add(name="sub").metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value="['mix', 'val_2']")
save(model, "blended.onnx")

# What it left of other parameters: a bias of two, of which the call names only the weight; a table of a product with a buffer; a
# matrix by way of a function; an Identity, which is no copy; bounds of Clip, without a trace and with the parameter in the call.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
lost (float[n, 3] x) => (float[n, 2, 3] y)
<float[3, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.3}, float[3] cat = {0.5, 0, -0.25},
 float[3, 3] val_5 = {1.5, 0.5, 0.75, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, float[1, 2, 3] val_9 = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6},
 float[3] b = {0.1, 0.2, 0.3}, float h_min = {-0.5}, float h_max = {0.75}, float l_max = {0.5}, int64[1] one = {1}>
{
  h = Gemm<transB = 1>(x, w, cat)
  kept = Clip(h, h_min, h_max)
  alias = Identity(w)
  again = MatMul(kept, alias)
  less = Clip(again, "", l_max)
  l = MatMul(less, val_5)
  row = Unsqueeze(l, one)
  table = Add(val_9, b)
  y = Add(row, table)
}""")
calls = ((0, "linear", "%x, %p_w, %cat"), (1, "clamp", "%h, %neg, %exp"), (4, "clamp", "%again, None, %p_high"), (7, "linear", "%b_grid, %p_k, %p_b"))
for i, function, args in calls:
    call = f"%v : call_function[target=torch.ops.aten.{function}.default](args = ({args}), kwargs = {{}})"
    model.graph.node[i].metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
signature = "".join(f"p_{w}: PARAMETER target='{w}'\n" for w in ("w", "q", "v", "rates", "k", "b", "low", "high")) + "b_grid: BUFFER target='grid'\n"
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
for name, leaves in (("cat", "['q', 'v']"), ("val_5", "['exp_1', 'rates']"), ("val_9", "['grid', 'k', 'val_8']")):
    model.graph.value_info.add(name=name).metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=leaves)
save(model, "lost.onnx")

# What it made one of equal constants: the first scales and shifts of two norms, weight[:, None], and two vectors of the model itself;
# only the calls and their modules tell which is which, but not of which of two the third module reads. A copy of a buffer beside the parameter that a call has. A sum of logarithms
# of a scale, in which all numbers are the same, but which is no size. A root of a sum without the 1e-8 that was added.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
merged (float[4, 3, 2] x) => (float[4, 3, 2] y, float[4] z)
<float[3, 1] unsqueeze_1 = {1, 1, 1}, float[3, 1] unsqueeze_3 = {0, 0, 0}, float[3] scale = {0.5, 2, 1.25},
 float[3, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.3}, float[3] _v = {0.25, 0.5, -0.75}, float[4] expand = {0.22, 0.22, 0.22, 0.22}, int64[1] one = {1}>
{
  a = Mul(unsqueeze_1, x)
  b = Add(a, unsqueeze_3)
  c = Tanh(b)
  d = Mul(unsqueeze_1, c)
  e = Add(d, unsqueeze_3)
  f = Tanh(e)
  g = Mul(unsqueeze_3, f)
  h = Add(g, unsqueeze_3)
  k = Mul(unsqueeze_1, h)
  copy = Identity(_v)
  u = MatMul(w, copy)
  v = Mul(u, scale)
  rows = Unsqueeze(v, one)
  y = Add(k, rows)
  total = ReduceSum<keepdims = 0>(y, both)
  root = Sqrt(total)
  z = Add(expand, root)
}""".replace("int64[1] one = {1}", "int64[1] one = {1}, int64[2] both = {1, 2}"))
calls = {0: ("first", "mul", "%unsqueeze_1, %x"), 1: ("first", "add", "%a, %unsqueeze_3"), 3: ("second", "mul", "%unsqueeze_5, %c"),
         4: ("second", "add", "%d, %unsqueeze_7"), 6: ("", "mul", "%unsqueeze_9, %f"), 7: ("", "add", "%g, %unsqueeze_11"),
         8: ("third", "mul", "%unsqueeze_13, %h"), 10: ("", "mv", "%p_w, %clone_1"), 11: ("", "mul", "%u, %p_scale"), 15: ("", "sqrt", "%add_9"),
         16: ("", "add", "%expand, %root")}
for i, (module, function, args) in calls.items():
    call = f"%v : call_function[target=torch.ops.aten.{function}.default](args = ({args}), kwargs = {{}})"
    model.graph.node[i].metadata_props.add(key="pkg.torch.onnx.fx_node", value=call)
    scopes = f"['', '{module}', 'v']" if module else "['', 'v']"
    model.graph.node[i].metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
names = ("first.weight", "first.bias", "second.weight", "second.bias", "gain", "offset", "scale", "w", "third.gain", "third.mix")
signature = "".join(f"p_{w.replace('.', '_')}: PARAMETER target='{w}'\n" for w in names) + "b__v: BUFFER target='_v'\n"
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
for name, leaves in (("unsqueeze_1", "['first.weight', 'val_1']"), ("unsqueeze_3", "['first.bias', 'val_1']"),
                     ("expand", "['abs_1', 'log', 'scale', 'sum_1', 'val_2']")):
    model.graph.value_info.add(name=name).metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=leaves)
model.graph.value_info.add(name="_v").metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value="BUFFER")
save(model, "merged.onnx")

# Parameters that it repeated over a batch of 3, among constants: a token before the words, whose own vector is read too; queries, transposed
# afterwards; a state; a token of zeros, whose axes nothing tells; the same of exp(rate); and one that got
# an axis more. `expanded`: the program, in which they are whole.
signature = "".join(f"p_{w}: PARAMETER target='{w}'\n" for w in ("cls", "q", "h", "w", "r", "g", "zero", "rate"))
inputs = """<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
%s (float[3, 2, 4] x) => (float[3, 4] y)
<float[4] cls = {0.5, -0.25, 0.75, -1.0}, float[1, 4, 4] w = {0.5, -0.25, 0.1, 0.2, -0.1, 0.4, 0.3, 0.6, -0.7, 0.25, 0.1, -0.3, 0.2, 0.8, -0.6, 0.35},
 float[1, 4, 4] r = {0.3, -0.1, 0.2, 0.5, -0.4, 0.1, 0.6, 0.2, -0.3, 0.7, 0.1, 0.2, 0.5, -0.6, 0.4, 0.1}, int64[1] one = {1}, int64[1] zeroth = {0},
 %s>
{
  gained = Mul(x, unsqueeze)
%s
  words = Concat <axis = 1> (expand, expand_2, expand_3, gained)
  scores = MatMul(transpose, across)
  parts = Softmax(scores)
  mixed = MatMul(parts, words)
  across = Transpose <perm = [0, 2, 1]> (words)
  first = Transpose <perm = [1, 0, 2]> (mixed)
  all, last = RNN <hidden_size = 4> (first, w, r, "", "", expand_1)
  flat = Squeeze(last, zeroth)
  y = Mul(flat, cls)
}"""
model = parser.parse_model(inputs % ("repeated", """float[3, 1, 4] expand = {0.5, -0.25, 0.75, -1.0, 0.5, -0.25, 0.75, -1.0, 0.5, -0.25, 0.75, -1.0},
 float[3, 2, 4] transpose = {0.3, 0.6, -0.2, 0.8, -0.5, 0.1, 0.9, 0.4, 0.3, 0.6, -0.2, 0.8, -0.5, 0.1, 0.9, 0.4, 0.3, 0.6, -0.2, 0.8, -0.5, 0.1, 0.9, 0.4},
 float[1, 2, 4] unsqueeze = {1.5, 0.5, 2, 1.25, 0.75, 1, 0.25, 3}, float[1, 3, 4] expand_1 = {0.1, 0.2, -0.3, 0.4, 0.1, 0.2, -0.3, 0.4, 0.1, 0.2, -0.3, 0.4},
 float[3, 1, 4] expand_2 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, float[3, 1, 4] expand_3 = {2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1}""", ""))
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
for name, leaves in (("expand", "['cls', 'unsqueeze', 'val_1']"), ("transpose", "['q', 'repeat', 'val_2']"), ("expand_1", "['clone', 'h']"), ("unsqueeze", "['g', 'val_4']"),
                     ("expand_2", "['zero', 'val_3']"), ("expand_3", "['exp', 'rate']")):
    model.graph.value_info.add(name=name).metadata_props.add(key="pkg.onnxscript.optimizer.folded_from", value=leaves)
save(model, "repeated.onnx")
model = parser.parse_model(inputs % ("expanded", """float[2, 4] q = {0.3, 0.6, -0.2, 0.8, -0.5, 0.1, 0.9, 0.4}, float[4] h = {0.1, 0.2, -0.3, 0.4}, float[2, 4] unsqueeze = {1.5, 0.5, 2, 1.25, 0.75, 1, 0.25, 3},
 float[1, 1, 4] zero = {0, 0, 0, 0}, float[1, 1, 4] rate = {2, 1, 3, 1}, int64[3] by_row = {3, 1, 1}, int64[3] by_column = {1, 3, 1}""", """
  expand = Expand(cls, by_row)
  transpose = Expand(q, by_row)
  expand_1 = Expand(h, by_column)
  expand_2 = Expand(zero, by_row)
  expand_3 = Expand(rate, by_row)"""))
save(model, "expanded.onnx")

# A basis of polynomials, which the older exporter writes as it does weights, and a weight.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
basis (float[n, 3] x) => (float[n, 5] y)
<float[3, 3] w = {0.5, -0.25, 0.1, 0.2, -0.1, 0.4, 0.3, 0.6, -0.7}, float[3, 5] basis = {1, 1, 1, 1, 1, -1, -0.5, 0, 0.5, 1, 1, -0.125, -0.5, -0.125, 1}>
{
  h = MatMul(x, w)
  y = MatMul(h, basis)
}"""), "basis.onnx")

# Quantized, but for a bias: scales are no weights, and integers are not trained.
quantized = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
quantized (float[n, 3] x) => (float[n, 2] y)
<int8[3, 2] w = {50, -25, 10, 20, -10, 40}, float[2] w_scale = {0.01, 0.02}, int8[2] w_zero = {0, 0}, float x_scale = {0.05}, uint8 x_zero = {128}, float[2] bias = {0.5, -0.25}>
{
  q = QuantizeLinear(x, x_scale, x_zero)
  d = DequantizeLinear(q, x_scale, x_zero)
  v = DequantizeLinear <axis = 1> (w, w_scale, w_zero)
  h = MatMul(d, v)
  y = Add(h, bias)
}""")
save(quantized, "quantized.onnx")

# As Keras is exported: the bias of the state is zero. A layer that resets after the product has both, as all of PyTorch have.
keras = """<ir_version: 8, opset_import: ["": 17], producer_name: "%s">
%s (float[n, 3, 2] x) => (float[n, 2] y)
<float[1, 6, 2] w = {0.5, -0.25, 0.1, 0.2, -0.1, 0.4, 0.3, 0.6, -0.7, 0.25, 0.1, -0.3}, float[1, 6, 2] r = {0.2, 0.8, -0.6, 0.35, 0.3, -0.1, 0.2, 0.5, -0.4, 0.1, 0.6, 0.2},
 float[1, 12] b = {0.5, -0.25, 0.75, -1.0, 0.3, 0.1, 0, 0, 0, 0, 0, 0}, int64[1] zeroth = {0}>
{
  time = Transpose <perm = [1, 0, 2]> (x)
  all, last = GRU <hidden_size = 2%s> (time, w, r, b)
  y = Squeeze(last, zeroth)
}"""
save(parser.parse_model(keras % ("tf2onnx", "one_bias", "")), "one_bias.onnx")
save(parser.parse_model(keras % ("tf2onnx", "two_biases", ", linear_before_reset = 1")), "two_biases.onnx")
save(parser.parse_model(keras % ("pytorch", "torch_biases", "")), "torch_biases.onnx")


def rename(model, names):
    """Gives initializers names that the text of a model cannot have."""
    for t in model.graph.initializer:
        t.name = names.get(t.name, t.name)
    for n in model.graph.node:
        n.input[:] = [names.get(i, i) for i in n.input]


# Frozen BatchNorm of the older exporter: as it is, and folded; a bound that the exporter computed.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
frozen (float[n, 2, 3, 3] x) => (float[n, 2, 3, 3] y)
<float[2, 2, 1, 1] k = {0.5, -0.25, 0.75, -1.0}, float[2, 1, 1] weight = {1.5, 0.5}, float[2, 1, 1] bias = {0.1, 0.2},
 float[2, 1, 1] mean = {0.3, -0.1}, float[2, 1, 1] var = {0.75, 1.25}, float[1, 2, 1, 1] factor = {0.9, 1.2}, float[1, 2, 1, 1] shift = {-0.1, 0.3}, float bound = {-0.5}>
{
  c = Conv(x, k)
  s = Sqrt(var)
  f = Div(weight, s)
  m = Mul(mean, f)
  b = Sub(bias, m)
  cf = Mul(c, f)
  n = Add(cf, b)
  d = Conv(n, k)
  e = Mul(d, factor)
  g = Add(e, shift)
  y = Clip(g, bound)
}""")
names = {"weight": "bn.weight", "bias": "bn.bias", "mean": "bn.running_mean", "var": "bn.running_var", "factor": "onnx::Mul_7",
         "shift": "onnx::Add_9", "bound": "onnx::Clip_12"}
rename(model, names)
save(model, "frozen_norm.onnx")

# BatchNormalization and PReLU of Keras as tf2onnx writes them: folded into a factor and into a kernel; a slope of the other sign.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "tf2onnx">
keras (float[n, 2, 3, 3] x) => (float[n, 2, 3, 3] y)
<float[2, 2, 1, 1] k = {0.5, -0.25, 0.75, -1.0}, float[2, 2, 1, 1] merged = {0.5, 0.25, -0.75, 1.0}, float[1, 2, 1, 1] factor = {0.9, 1.2},
 float[1, 2, 1, 1] shift = {-0.1, 0.3}, float[2, 1, 1] slope = {-0.1, -0.2}>
{
  c = Conv(x, k)
  e = Mul(c, factor)
  g = Add(e, shift)
  d = Conv(g, merged)
  down = Neg(d)
  low = Relu(down)
  scaled = Mul(low, slope)
  high = Relu(d)
  y = Add(high, scaled)
}""")
names = {"merged": "net/conv_1/convolution/merged_input:0", "factor": "net/bn/batchnorm/mul:0", "shift": "const_fold_opt__7", "slope": "net/p_re_lu/Neg:0"}
rename(model, names)
save(model, "keras_norm.onnx")

# The quantized model, made by ONNX Runtime, which keeps the parameters that PyTorch's newer exporter lists.
rename(quantized, {"w": "fc.weight_quantized", "w_scale": "fc.weight_scale"})
quantized.producer_name = "pytorch"
quantized.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature",
                               value="p_w: PARAMETER target='fc.weight'\np_b: PARAMETER target='bias'\n")
save(quantized, "quantized_program.onnx")

# What constants are called: of TensorFlow, a function of a weight, a token repeated over a batch of 2, a table, factors of an input, the scale
# of a BatchNorm that learns none, and a learned number; and of PyTorch's older exporter with an optimizer after it, the same and a parameter
# of another shape.
text = """<ir_version: 8, opset_import: ["": 17], producer_name: "%s">
computed (float[2, 3, 4] x) => (float[2, 4, 4] y)
<float[1, 1, 4] mean = {0.5, -0.25, 0.75, -1.0}, float[1, 1, 4] std = {1.5, 0.25, 0.75, 1.25}, float[1, 3, 4] table = {1, 2, 4, 3, 2, 5, 1, 4, 3, 2, 6, 1},
 float[2, 1, 4] token = {0.3, 0.6, -0.2, 0.8, 0.3, 0.6, -0.2, 0.8}, float[4, 4] kernel = {0.5, -0.25, 0.1, 0.2, -0.1, 0.4, 0.3, 0.6, -0.7, 0.25, 0.1, -0.3, 0.2, 0.8, -0.6, 0.35},
 float[4] rsqrt = {2, 1, 0.5, 3}, float number = {0.7}, float[4] cls = {0.4, 0.3, -0.2, 0.1}, float[1, 1, 4] vector = {0.4, 0.3, -0.2, 0.1}>
{
  a = Add(x, mean)
  b = Mul(a, std)
  c = Add(b, table)
  d = Concat <axis = 1> (c, token)
  e = MatMul(d, kernel)
  f = Mul(e, rsqrt)
  g = Mul(f, number)
  h = Add(g, cls)
  i = Tanh(vector)
  y = Mul(h, i)
}"""
model = parser.parse_model(text % "tf2onnx")
rename(model, {"mean": "net/norm/add:0", "std": "ConstantFolding/net/norm/truediv_recip:0", "table": "net/positions/Const_1:0", "token": "net/Tile:0",
               "kernel": "net/dense/Softplus:0", "rsqrt": "net/bn/batchnorm/Rsqrt:0", "number": "net/scale/Mul/ReadVariableOp:0",
               "cls": "net/dense/BiasAdd/ReadVariableOp:0", "vector": "net/vector/ReadVariableOp:0"})
save(model, "keras_names.onnx")
model = parser.parse_model(text % "pytorch")
rename(model, {"mean": "/norm/Add_output_0", "std": "norm.std", "table": "/Constant_1_output_0", "token": "/Expand_output_0", "kernel": "/dense/Softplus_output_0",
               "rsqrt": "scale", "number": "/Constant_output_0", "vector": "onnx::Tanh_42"})
save(model, "torch_names.onnx")
# Of its newer exporter, after an optimizer that removed what the file records: the names of nodes and of computed values remain.
model = parser.parse_model(text % "pytorch")
rename(model, {"mean": "norm.mean", "std": "mul_2", "table": "embedding_1", "token": "expand", "kernel": "val_7", "rsqrt": "scale", "number": "exp_1", "cls": "bias",
               "vector": "where"})
for n in model.graph.node:
    n.name = f"node_{n.output[0]}"
save(model, "traced_names.onnx")
model = parser.parse_model(text % "jax2onnx")
rename(model, {name: f"const_{i}" for i, name in enumerate(("mean", "std", "table", "token", "kernel", "rsqrt", "number", "cls", "vector"))})
save(model, "jax_names.onnx")

# What its older exporter folded from buffers and norms: a grid of knots, and a number that no operator reads as a weight.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
folds_old (float[n, 5] x) => (float[n, 5] y)
<float[5, 5] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.3, 0.1, 0.2, 0.7, -0.3, 0.5, 0.1, 0.4, 0.9, -0.6, 0.2, 0.8, 0.3, 0.1, 0.5, -0.2, 0.6},
 float[5] knots = {-2, -1, 0, 1, 2}, float[1] norm = {1.5}>
{
  h = MatMul(x, w)
  from = Sub(h, knots)
  least = Constant<value = float {1e-12}>()
  length = Clip(norm, least)
  y = Div(from, length)
}""")
model.graph.initializer[1].name = model.graph.node[1].input[1] = "onnx::Sub_7"
model.graph.initializer[2].name = model.graph.node[3].input[0] = "onnx::Clip_9"
save(model, "folds_old.onnx")

# Bits that are shifted by their number and by more, in data and in constants.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
shifts (uint32[4] x, uint32[4] by) => (uint32[4] left, uint32[4] right, uint32[4] known_left, uint32[4] known_right)
<uint32[4] k = {1, 4294967295, 77, 77}, uint32[4] many = {31, 31, 32, 4294967295}>
{
  left = BitShift<direction = "LEFT">(x, by)
  right = BitShift<direction = "RIGHT">(x, by)
  known_left = BitShift<direction = "LEFT">(k, many)
  known_right = BitShift<direction = "RIGHT">(k, many)
}"""), "shifts.onnx")

# Functions named like operators of the imported set, like one of a later set, and like one of another domain.
opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
functions = [helper.make_function(domain, name, ["a"], ["b"], [node("Neg", ["a"], ["b"])], opsets[:1])
             for domain, name in [("", "Relu"), ("", "Gelu"), ("own", "Relu")]]
nodes = [node("Relu", ["x"], ["operator"]), node("Gelu", ["x"], ["later"]), node("Relu", ["x"], ["own"], domain="own")]
outputs = [helper.make_tensor_value_info(name, F, [3]) for name in ["operator", "later", "own"]]
graph = helper.make_graph(nodes, "functions", [helper.make_tensor_value_info("x", F, [3])], outputs)
save(helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions), "functions.onnx")

# A constant that a module computed from a parameter when it left training mode, as LeViT does with its attention's biases.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 20], producer_name: "pytorch">
lifted (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.1, 0.2, 0.3}, float[3] c = {0.5, 0, -0.25}>
{
  h = MatMul(x, w)
  y = Add(h, c)
}""")
model.graph.initializer[1].name = model.graph.node[1].input[1] = "block.lifted_tensor_0"
signature = "".join(f"p_{name}: PARAMETER target='{name}'\n" for name in ("w", "block.biases", "other.unused"))
model.graph.metadata_props.add(key="pkg.torch.export.ExportedProgram.graph_signature", value=signature)
save(model, "lifted.onnx")

# Names of inputs and outputs that are left out at the end, beyond those that the operators have.
nodes = [node("Relu", ["x", ""], ["y", ""]), node("Clip", ["x", "", "", ""], ["z"]), node("Add", ["x", "x", "", ""], ["sum"])]
outputs = [helper.make_tensor_value_info(name, F, [3]) for name in ["y", "z", "sum"]]
graph = helper.make_graph(nodes, "trailing", [helper.make_tensor_value_info("x", F, [3])], outputs)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "trailing.onnx")

# Powers of integers: by whole numbers, by halves, and of constants.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
powers (int64[4] x, float[4] y) => (int64[4] power, int64[4] square, int32[4] known)
<int64 two = {2}, int32[4] k = {-1, 0, 3, 7}, int64[4] by = {63, 64, 19, -1}>
{
  power = Pow(x, y)
  square = Pow(x, two)
  known = Pow(k, by)
}"""), "powers.onnx")

# Outputs that losses take, and others take amiss.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
kinds (float[n, 4] x) => (float[n, 3] logits, float[n, 3] p, float[n, 3] each, float[n, 3] logs)
<float[4, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.125, -0.5, 1.0, 0.75, 0.25, -0.125}, float[3] b = {0.25, -0.5, 0.125}>
{
  y = MatMul(x, w)
  logits = Add(y, b)
  soft = Softmax(logits)
  p = Identity(soft)
  each = Sigmoid(logits)
  logs = LogSoftmax(logits)
}"""), "kinds.onnx")

# A signal without an axis of parts, as PyTorch's older exporter writes it, and the same with one.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
spectrum (float[2, 16] x) => (float[2, 5, 5, 2] flat, float[2, 5, 5, 2] parts)
<int64 step = {2}, float[8] window = {0.0, 0.2, 0.6, 1.0, 1.0, 0.6, 0.2, 0.1}, int64[1] last = {-1}>
{
  flat = STFT(x, step, window)
  signal = Unsqueeze(x, last)
  parts = STFT(signal, step, window)
}"""), "spectrum.onnx")

# A loss whose label smoothing only the call has: the operator of ONNX has none.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
smoothed (float[n, 4] x, int64[n] labels) => (float loss)
<float[4, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25, 0.125, -0.5, 1.0, 0.75, 0.25, -0.125}>
{
  y = MatMul(x, w)
  loss = SoftmaxCrossEntropyLoss(y, labels)
}""")
model.graph.node[1].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%v : call_function[target=torch.ops.aten.cross_entropy_loss.default]"
                                       "(args = (%y, %labels, None, 1, -100, 0.1), kwargs = {})")
save(model, "smoothed.onnx")

# A bound of the type of a part of a sequence, which only declarations have.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
like (float[2, 4] x) => (float[2, 2] y)
<float[2] w = {0.5, -0.25}, int64 two = {2}, int64 zero = {0}, int64 bound = {-100}, float[2, 2] part, float bottom>
{
  parts = SplitToSequence<axis = 1>(x, two)
  part = SequenceAt(parts, zero)
  h = Mul(part, w)
  bottom = CastLike(bound, h)
  y = Max(h, bottom)
}"""), "like.onnx")

# A norm that PyTorch's older exporter computed from a weight that the file has too, and a buffer that holds knots.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
knots (float[n, 3] x) => (float[n, 2] y, float[n, 3, 5] z)
<float[2, 3] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[2, 1] norm = {0.935414, 1.145644}, float[5] knots = {-1.0, -0.5, 0, 0.5, 1.0}, int64[1] last = {-1}>
{
  least = Constant<value = float {1e-12}>()
  divisor = Clip(norm, least)
  row = Div(w, divisor)
  column = Transpose(row)
  y = MatMul(x, column)
  h = Tanh(x)
  each = Unsqueeze(h, last)
  z = Sub(each, knots)
}""")
model.graph.initializer[1].name = model.graph.node[1].input[0] = "onnx::Clip_5"
save(model, "knots.onnx")

# A mean that only the call has: ScatterElements has none.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18], producer_name: "pytorch">
averaged (float[4, 3] x, int64[4, 2] index) => (float[3, 2] y)
<float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[3, 2] zeros = {0, 0, 0, 0, 0, 0}>
{
  h = MatMul(x, w)
  y = ScatterElements<axis = 0, reduction = "none">(zeros, index, h)
}""")
model.graph.node[1].metadata_props.add(key="pkg.torch.onnx.fx_node", value="%y : [num_users=1] = call_function[target=torch.ops.aten.scatter_reduce.two]"
                                       "(args = (%zeros, 0, %index, %h, mean), kwargs = {})")
save(model, "averaged.onnx")

# An index_add as PyTorch's older exporter writes it: a scatter into zeros, without a sum, is added to the rest. A scatter that
# sets elements looks the same.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
added (float[4, 3] x, int64[4, 2] index) => (float[3, 2] y)
<float[3, 2] w = {0.5, -0.25, 0.75, -1.0, 0.5, 0.25}, float[3, 2] b = {1, 2, 3, 4, 5, 6}>
{
  zeros = Constant<value = float[3, 2] {0, 0, 0, 0, 0, 0}>()
  h = MatMul(x, w)
  sum = ScatterElements<axis = 0>(zeros, index, h)
  y = Add(b, sum)
}"""), "added.onnx")

# Buffers that PyTorch's older exporter names as it names parameters: a causal mask, a triangle, positions (of places, the same with
# mean 0 and small, and of patches after a class token), rotations, edges, slopes, a filter and a schedule.
# Biases that open the gates of an LSTM are zeros and ones, too; a slope is learned.
n, d = 6, 8
angle = np.arange(n)[:, None] * 100.0 ** (-np.arange(d // 2) / 4)
tables = {
    "later": np.where(np.tri(n) > 0, 0, -np.inf),
    "triangle": np.tri(n),
    "pe": np.stack([np.sin(angle), np.cos(angle)], -1).reshape(n, d),
    "patches": np.concatenate([np.zeros((1, d)), np.hstack([f(angle[:5, k : k + 2]) for k in (0, 2) for f in (np.sin, np.cos)])]),
    "small": (np.stack([np.sin(angle), np.cos(angle)], -1).reshape(n, d) - 0.46) / 7,
    "cos": np.tile(np.cos(angle), 2),
    "sin": np.tile(np.sin(angle), 2),
    "edges": (np.cos(np.arange(n)[:, None] - np.arange(n)) + 2) / 12,
    "steps": np.sqrt(np.cumprod(1 - np.linspace(0.01, 0.2, 10))),
    "gates.bias": np.array([0, 0, 0, 0, 1, 1, 0, 0]),
    "slopes": 2.0 ** -np.arange(1, n + 1)[:, None],
    "edge": np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])[None, None],
    "slope": np.array([[0.5, -0.25, 0.125, 0.25] * 2] * n) * np.array([1, 2, 3, 1, 2, 3])[:, None],
    "w": np.sin(1.0 + np.arange(d * d)).reshape(d, d),
}
nodes = [
    node("Add", ["x", "pe"], ["at"]),
    node("Add", ["at", "small"], ["placed"]),
    node("Add", ["placed", "patches"], ["h"]),
    node("MatMul", ["h", "w"], ["p"]),
    node("Add", ["p", "gates.bias"], ["q"]),
    node("Mul", ["q", "cos"], ["one"]),
    node("Mul", ["q", "sin"], ["two"]),
    node("Add", ["one", "two"], ["turned"]),
    node("Transpose", ["turned"], ["t"], perm=[0, 2, 1]),
    node("MatMul", ["turned", "t"], ["scores"]),
    node("Add", ["scores", "later"], ["shown"]),
    node("Softmax", ["shown"], ["weights"], axis=-1),
    node("Mul", ["weights", "triangle"], ["kept"]),
    node("MatMul", ["kept", "q"], ["v"]),
    node("MatMul", ["edges", "v"], ["sum"]),
    node("Mul", ["sum", "slope"], ["sloped"]),
    node("Gather", ["steps", "i"], ["step"]),
    node("Mul", ["sloped", "step"], ["stepped"]),
    node("Mul", ["stepped", "slopes"], ["scaled"]),
    node("Unsqueeze", ["scaled", "one axis"], ["image"]),
    node("Conv", ["image", "edge"], ["y"], pads=[1, 1, 1, 1]),
]
inputs = [value("x", F, [2, n, d]), value("i", I, [])]
tables = [numpy_helper.from_array(table.astype("f"), name) for name, table in tables.items()]
tables += [numpy_helper.from_array(np.array([1]), "one axis")]
graph = helper.make_graph(nodes, "buffers", inputs, [value("y", F, [2, 1, n, d])], tables)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch"), "buffers.onnx")

# Others of which only numbers, places and what is computed tell: a window, a symmetric kernel, frequencies of sines and
# cosines, slopes of two heads, positions as data, random features by their name, and what follows integers of its module.
tables = {
    "coords": np.stack(np.meshgrid(*2 * [[-1.0, -0.7, -0.3, 0, 0.3, 0.7, 1.0]]), -1),
    "features.projection_matrix": np.array([[0.5, -0.3], [0.2, 0.8]]),
    "times": np.stack([np.arange(6) / 5, *(f(np.arange(6) * 1.7) for f in (np.sin, np.cos))], 1),
    "coding": np.array([[0.5, -0.3], [0.2, 0.8], [-0.7, 0.1]]),
    "window": 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(d) / d),
    "kernel": np.sin(1.0 + np.arange(d)[:, None] * np.arange(d)),
    "w": np.sin(1.0 + np.arange(4 * d)).reshape(d, 4),
    "rates": np.array([0.3, 1.7, 0.9, 0.2]),
    "heads": np.array([[1 / 16], [1 / 256]]),
    "block.gain": np.array([1.5, 0.7]),
    "block.ids": np.array([1, 0]),
    "block.offset": np.array([0.4, 0.1]),
}
nodes = [
    node("Mul", ["x", "window"], ["shaped"]),
    node("MatMul", ["shaped", "kernel"], ["second"]),
    node("MatMul", ["second", "w"], ["p"]),
    node("Mul", ["p", "rates"], ["angle"]),
    node("Sin", ["angle"], ["sine"]),
    node("Cos", ["angle"], ["cosine"]),
    node("Add", ["sine", "cosine"], ["waves"]),
    node("Reshape", ["waves", "by head"], ["each"]),
    node("Mul", ["each", "heads"], ["sloped"]),
    node("Gather", ["sloped", "block.ids"], ["turned"], axis=2),
    node("Mul", ["turned", "block.gain"], ["scaled"]),
    node("Add", ["scaled", "block.offset"], ["moved"]),
    node("MatMul", ["times", "coding"], ["codes"]),
    node("ReduceMean", ["codes"], ["code"], axes=[0], keepdims=0),
    node("MatMul", ["moved", "features.projection_matrix"], ["projected"]),
    node("MatMul", ["coords", "features.projection_matrix"], ["places"]),
    node("ReduceMean", ["places"], ["place"], axes=[0, 1], keepdims=0),
    node("Add", ["projected", "code"], ["coded"]),
    node("Add", ["coded", "place"], ["y"]),
]
tables = [numpy_helper.from_array(table if table.dtype == int else table.astype("f"), name) for name, table in tables.items()]
tables += [numpy_helper.from_array(np.array([-1, 2, 2]), "by head")]
graph = helper.make_graph(nodes, "places", [value("x", F, [2, d])], [value("y", F, [2, 2, 2])], tables)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch"), "places.onnx")

# Products with one weight as PyTorch's older exporter writes them after folding: with its transposed copy in the module that has
# it as a part (tied), in another module that began with equal numbers (not tied), and in two calls of one module (tied).
w = np.sin(1.0 + np.arange(16)).reshape(4, 4)
v = np.cos(1.0 + 2 * np.arange(16)).reshape(4, 4)
tables = {"onnx::MatMul_12": w.T, "m.a.weight": w, "onnx::MatMul_13": w.T, "onnx::MatMul_14": v}
nodes = [
    node("MatMul", ["x", "onnx::MatMul_12"], ["p"], name="/m/MatMul"),
    node("MatMul", ["p", "m.a.weight"], ["q"], name="/m/MatMul_1"),
    node("MatMul", ["q", "onnx::MatMul_13"], ["r"], name="/m/b/MatMul"),
    node("Identity", ["onnx::MatMul_14"], ["onnx::MatMul_15"], name="Identity_9"),
    node("MatMul", ["r", "onnx::MatMul_14"], ["s"], name="/m/d/MatMul"),
    node("MatMul", ["s", "onnx::MatMul_15"], ["y"], name="/m/d_1/MatMul"),
]
tables = [numpy_helper.from_array(np.ascontiguousarray(table, "f"), name) for name, table in tables.items()]
graph = helper.make_graph(nodes, "turned", [value("x", F, [2, 4])], [value("y", F, [2, 4])], tables)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch"), "turned.onnx")

# Where PyTorch's older exporter promotes integers to bfloat16, it casts them to complex128, by its own number for bfloat16.
nodes = [node("Cast", ["i"], ["c"], to=15), node("Mul", ["s", "c"], ["b"]), node("Cast", ["b"], ["f"], to=1), node("Mul", ["f", "w"], ["y"])]
tables = [helper.make_tensor("s", TensorProto.BFLOAT16, [2], [0.5, 0.25]), helper.make_tensor("w", F, [2], [1.5, -0.5])]
graph = helper.make_graph(nodes, "promoted", [value("i", I, [2])], [value("y", F, [2])], tables)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="pytorch"), "promoted.onnx")

# A layer with an adapter, as PEFT names them.
model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
adapted (float[2, 4] x) => (float[2, 3] y)
<float[4, 3] w = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 1.0, 1.1, -1.2}, float[4, 1] a = {0.1, -0.2, 0.3, -0.4}, float[1, 3] b = {0, 0, 0}>
{
  p = MatMul(x, w)
  q = MatMul(x, a)
  r = MatMul(q, b)
  y = Add(p, r)
}""")
names = {"w": "q_proj.base_layer.weight", "a": "q_proj.lora_A.default.weight", "b": "q_proj.lora_B.default.weight"}
for one, n in zip(model.graph.initializer, model.graph.node[:3]):
    n.input[1] = one.name = names[one.name]
save(model, "adapted.onnx")

# Corners on which ONNX Runtime and the text of ONNX agree: the odd element of a transposed convolution's padding, a start before the first entry of
# a slice that goes down, known and computed, a padding of integers beyond 2^53, norms of a single number and along no axis, roots and logarithms of
# integers, which are cut off, and the first 0 elements. Without a step, the last state is the first one.
save(parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
corners (float number, float[1, 1, 2] x, int64[3] k, int64[1] from) => (float[1, 1, 4] odd, float[1, 1, 4] upper, int64[1] first, int64[n] computed, int64[5] around, float size, float root, float log, float[1, 1, 2] squares, int64[1] whole, int64[1] power, int64[1] powers, int64[0] most, int64[0] at, float[1, 1, 2] last)
<int64[1] none = {0}, float[0, 1, 1] steps = {}, float[1, 2, 1] in = {1, 2}, float[1, 2, 2] back = {1, 2, 3, 4}, float[1, 1, 4] w = {1, 10, 100, 1000}, int64[1] far = {-9}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0}, int64[1] down = {-1}, int64[2] sides = {1, 1}, int64 large = {9223372036854775806}>
{
  odd = ConvTranspose<output_shape = [4]>(x, w)
  upper = ConvTranspose<output_shape = [4], auto_pad = "SAME_UPPER">(x, w)
  first = Slice(k, far, end, axis, down)
  computed = Slice(k, from, end, axis, down)
  around = Pad(k, sides, large)
  size = ReduceL1(number)
  root = ReduceL2(number)
  log = ReduceLogSum(size)
  squares = ReduceSumSquare<noop_with_empty_axes = 1>(x)
  whole = ReduceL2(k)
  power = ReduceLogSum(k)
  powers = ReduceLogSumExp(k)
  most, at = TopK(k, none)
  all, last = RNN<hidden_size = 2>(steps, in, back, , , x)
}"""), "corners.onnx")

# Numbers up to the largest length, as PyTorch's newer exporter writes range(max(lengths)): it names their count. The first are as many as x has
# columns; of the second, as many columns are taken; of the third the exporter knows the count.
save(parser.parse_model("""<ir_version: 10, opset_import: ["": 20], producer_name: "pytorch">
counts (float[2, 4, 3] x, int64[2] a, int64[2] b, int64[2] c) => (float[2, 4] y, float[2, 3] z, float[2, 4] k)
<int64 zero = {0}, int64 one = {1}, int64[1] axis = {1}, int64[1] last = {2}, int64[1] start = {0}, int64[1] line = {-1}, float[3] w = {0.5, -1, 2},
 int64[u0] first, bool[2, u0] seen, float[2, u0] kept, int64[u1] second, float[2, u1, 3] some, int64[4] third, float[2, 4, 3] all, float[2, 4] total>
{
  longest_a = ReduceMax<keepdims = 0>(a)
  first = Range(zero, longest_a, one)
  column_a = Unsqueeze(a, axis)
  seen = Less(first, column_a)
  kept = Cast<to = 1>(seen)
  weighed = Mul(x, w)
  all = Identity(weighed)
  rows = ReduceSum<keepdims = 0>(all, last)
  total = Identity(rows)
  y = Mul(total, kept)
  longest_b = ReduceMax<keepdims = 0>(b)
  second = Range(zero, longest_b, one)
  limit = Reshape(longest_b, line)
  some = Slice(x, start, limit, axis)
  column_b = Unsqueeze(b, axis)
  inside = Less(second, column_b)
  part = Cast<to = 1>(inside)
  wide = Unsqueeze(part, last)
  taken = Mul(some, wide)
  z = ReduceSum<keepdims = 0>(taken, axis)
  longest_c = ReduceMax<keepdims = 0>(c)
  third = Range(zero, longest_c, one)
  column_c = Unsqueeze(c, axis)
  within = Less(third, column_c)
  k = Cast<to = 1>(within)
}"""), "counts.onnx")
