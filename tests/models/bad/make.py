"""Writes many.onnx, with all that can be wrong at once, and idle.onnx beside it. Needs onnx; the tests need only the
files."""
import numpy as np
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper, parser


def array(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


nodes = [helper.make_node('Ours', ['x'], ['a'], '/ours', domain='our.domain'),
         helper.make_node('RegexFullMatch', ['words'], ['m'], '/match', pattern='a'),
         helper.make_node('Add', ['x', 'five'], ['b'], '/shapes'),
         helper.make_node('Add', ['x', 'numbers'], ['c'], '/types'),
         helper.make_node('Reshape', ['x', 'shape'], ['d'], '/reshape'),
         helper.make_node('Blob', ['a'], ['e'], '/blob'),
         helper.make_node('Relu', ['nowhere'], ['f'], '/relu'),
         helper.make_node('MaxPool', ['wide'], ['g'], '/pool', kernel_shape=[1, 1, 1, 1]),
         helper.make_node('Cast', ['x'], ['h'], '/cast', to=TensorProto.COMPLEX64),
         helper.make_node('Cast', ['x'], ['i'], '/whole', to=TensorProto.INT64),
         helper.make_node('ConstantOfShape', ['i'], ['j'], '/sized'),
         helper.make_node('Gemm', ['x', 'weight'], ['y'], '/gemm')]
weights = [array('five', np.ones(5, np.float32)), array('numbers', np.ones(4, np.int64)), array('shape', [3, 7]),
           array('wide', np.ones((1, 1, 1, 2, 2, 2), np.float32)),
           array('weight', np.ones((4, 3), np.float32)), helper.make_tensor('words', TensorProto.STRING, [1], [b'a'])]
inputs = [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', 4]),
          helper.make_tensor_value_info('z', TensorProto.COMPLEX64, [2]),
          helper.make_tensor_value_info('open', TensorProto.FLOAT, None)]
outputs = [helper.make_tensor_value_info('y', TensorProto.FLOAT, ['batch', 3]),
           helper.make_tensor_value_info('gone', TensorProto.FLOAT, [1])]
graph = helper.make_graph(nodes, 'main', inputs, outputs, weights)
sets = [helper.make_opsetid('', 20), helper.make_opsetid('our.domain', 1)]
model = helper.make_model(graph, opset_imports=sets, ir_version=8)
with open('many.onnx', 'wb') as file:
    file.write(model.SerializeToString())

# Of these three only the last gets a gradient from a loss of y.
nodes = [helper.make_node('MatMul', ['x', 'first.weight'], ['a'], '/first'),
         helper.make_node('Round', ['a'], ['b'], '/round'),
         helper.make_node('MatMul', ['x', 'side.weight'], ['side'], '/side'),
         helper.make_node('MatMul', ['b', 'last.weight'], ['y'], '/last')]
weights = [array(name, np.linspace(-1, 1, m * n, dtype=np.float32).reshape(m, n))
           for name, m, n in [('first.weight', 4, 5), ('side.weight', 4, 3), ('last.weight', 5, 3)]]
outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ['batch', 3]) for name in ('y', 'side')]
graph = helper.make_graph(nodes, 'main', inputs[:1], outputs, weights)
model = helper.make_model(graph, opset_imports=sets[:1], ir_version=8)
with open('idle.onnx', 'wb') as file:
    file.write(model.SerializeToString())

def save(name, nodes, inputs, weights=(), outputs=('y',), opset=20, **more):
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) if isinstance(o, str) else o for o in outputs]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    graph = helper.make_graph(nodes, 'main', inputs, outputs, weights)
    model = helper.make_model(graph, ir_version=8, **{'opset_imports': [helper.make_opsetid('', opset)], **more})
    with open(name, 'wb') as file:
        file.write(model.SerializeToString())


# An operator that takes no size that the data decide.
save('counted.onnx', [helper.make_node('Greater', ['x', 'zero'], ['positive']),
                      helper.make_node('Compress', ['x', 'positive'], ['rows'], axis=0),
                      helper.make_node('EyeLike', ['rows'], ['y'], '/eye')],
     {'x': [4]}, [array('zero', np.float32(0))])

# Nodes that contradict their operators' schemas, or themselves, each in its own way.
wrong = [('Softmax', 'x', dict(axis=1.5)), ('Concat', 'x x', {}), ('Split', 'x', dict(num_outputs=0)),
         ('Split', 'x', dict(num_outputs=1 << 40)), ('Split', 'x', dict(num_outputs=2)),
         ('Conv', 'image kernel', dict(auto_pad='SAME')), ('Conv', 'image kernel', dict(dilations=[-1, 1])),
         ('Conv', 'image kernel', dict(strides=[0, 1])), ('Conv', 'image kernel', dict(group=0)),
         ('Conv', 'image kernel', dict(kernel_shape=[5, 5])), ('Conv', 'image kernel', dict(strides=[1, 1, 1])),
         ('LSTM', 'steps w r', dict(hidden_size=7)), ('LSTM', 'steps w r', dict(direction='backward')),
         ('Reshape', 'x minus', {}), ('Transpose', 'x', dict(perm=[0, 0])), ('Transpose', 'x', dict(perm=[0])),
         ('ReduceMean', 'x axes', {}), ('ReduceMean', 'x twice', {}), ('Squeeze', 'one twice', {}),
         ('Unsqueeze', 'x twice', {}), ('ArgMax', 'x', dict(axis=2)), ('Gelu', 'x', dict(approximate='erf')),
         ('Relu', 'x x', {}), ('Gemm', 'x', {}), ('Relu', 'x', dict(alpha=0.1)), ('Elu', 'x', dict(alfa=0.1)),
         ('ReduceSum', 'x', dict(axes=[1])), ('Dropout', 'x', dict(ratio=0.5)), ('Dropout', 'x', dict(seed=0.5)),
         ('Constant', '', dict(value_int=1, value_float=1.0)), ('Constant', '', {}),
         ('DepthToSpace', 'image', dict(blocksize=0)), ('Cast', 'x', {}), ('TopK', 'x minus', dict(largest='no')),
         ('Conv', 'image kernel', dict(dilations=[1, (1 << 63) - 1])), ('MaxPool', 'image', dict(kernel_shape=[2, 1 << 62])),
         ('Conv', 'image kernel', dict(pads=[0, 1 << 62, 0, 1 << 62])), ('AveragePool', 'image', dict(kernel_shape=[2, 2], strides=[1 << 40, 1]))]
nodes = [helper.make_node(op, names.split(), [f'{op}_{i}'], f'/{i}', **attributes)
         for i, (op, names, attributes) in enumerate(wrong)]
nodes.append(helper.make_node('Softmax', ['x'], ['Softmax_twice'], '/twice', axis=0))
nodes[-1].attribute.append(helper.make_attribute('axis', 1))
nodes.append(helper.make_node('Softmax', ['x'], ['Softmax_both'], '/both', axis=0))
nodes[-1].attribute[0].f = 1.5
weights = [array('minus', np.array([-5, 4])), array('axes', np.array([2])), array('twice', np.array([0, 0])),
           array('kernel', np.ones((2, 1, 3, 3), np.float32)), array('w', np.ones((1, 16, 3), np.float32)),
           array('r', np.ones((1, 16, 4), np.float32))]
save('attributes.onnx', nodes, {'x': [2, 4], 'image': [1, 1, 6, 6], 'steps': [5, 1, 3], 'one': [1, 1]}, weights,
     [node.output[0] for node in nodes])

# States, biases, peepholes and lengths that do not fit a recurrent layer of 4 units, 2 sequences and 5 steps.
kinds = {'h': [1, 2, 6], 'c': [1, 2, 4], 'flat': [2, 4], 'three': [1, 3, 4], 'first': [2, 1, 6], 'b': [1, 24], 'p': [1, 18], 'n': [3]}
wrong = [('LSTM', 'x w r   h', {}), ('LSTM', 'x w r   c h', {}), ('LSTM', 'x w r   c three', {}), ('LSTM', 'x w r   flat', {}),
         ('LSTM', 'x w r   first', dict(layout=1)), ('LSTM', 'x w r b', {}), ('LSTM', 'x w r     p', {}), ('LSTM', 'x w r  n', {})]
weights = [array('w', np.ones((1, 16, 3), np.float32)), array('r', np.ones((1, 16, 4), np.float32))]
weights += [array(name, np.ones(shape, np.int32 if name == 'n' else np.float32)) for name, shape in kinds.items()]
nodes = [helper.make_node(op, (names.replace('x', 'turned') if attributes else names).split(' '), [f'{op}_{i}'], f'/{i}', **attributes)
         for i, (op, names, attributes) in enumerate(wrong)]
save('recurrent.onnx', nodes, {'x': [5, 2, 3], 'turned': [2, 5, 3]}, weights, [node.output[0] for node in nodes])

# A bias of other channels.
save('bias.onnx', [helper.make_node('Conv', ['x', 'w', 'b'], ['y'], '/conv')], {'x': [1, 1, 4]},
     [array('w', np.ones((2, 1, 3), np.float32)), array('b', np.ones((2, 2), np.float32))])

# Files that contradict themselves.
row, relu = {'x': [2, 4]}, helper.make_node('Relu', ['x'], ['y'], '/relu')
save('no-opset.onnx', [relu], row, opset_imports=[])
save('two-opsets.onnx', [relu], row, opset_imports=[helper.make_opsetid('', 20), helper.make_opsetid('ai.onnx', 11)])
own = helper.make_function('own', 'F', ['a'], ['b'], [helper.make_node('Exp', ['a'], ['b'])], [helper.make_opsetid('', 20)])
save('function-twice.onnx', [helper.make_node('F', ['x'], ['y'], domain='own')], row, functions=[own, own],
     opset_imports=[helper.make_opsetid('', 20), helper.make_opsetid('own', 1)])
both = array('b', np.ones(4, np.float32))
both.float_data.extend([2, 2, 2, 2])
save('data-twice.onnx', [helper.make_node('Add', ['x', 'b'], ['y'], '/add')], row, [both])
save('output-twice.onnx', [relu], row, outputs=['y', 'y'])
save('result-twice.onnx', [relu, helper.make_node('Exp', ['x'], ['y'], '/exp')], row)
save('output-type.onnx', [helper.make_node('Cast', ['x'], ['y'], '/cast', to=TensorProto.INT64)], row)
save('output-width.onnx', [helper.make_node('Add', ['x', 'w'], ['a'], '/add'), helper.make_node('Relu', ['a'], ['y'], '/relu')],
     row, [array('w', np.ones(4, np.float32))], [helper.make_tensor_value_info('y', TensorProto.FLOAT16, [2, 4])])
save('output-shape.onnx', [relu], row, outputs=[helper.make_tensor_value_info('y', TensorProto.FLOAT, [2, 5])])
save('output-rank.onnx', [relu], row, outputs=[helper.make_tensor_value_info('y', TensorProto.FLOAT, ['n', 2, 4])])

# Numbers of constants that the types they are computed in, or their own, cannot hold.
unsigned = [helper.make_tensor_value_info('x', TensorProto.UINT64, [2])], [array('u', np.array([1, 2**63 + 5], np.uint64))]
graph = helper.make_graph([helper.make_node('Add', ['x', 'u'], ['y'])], 'main', unsigned[0],
                          [helper.make_tensor_value_info('y', TensorProto.UINT64, [2])], unsigned[1])
with open('unsigned.onnx', 'wb') as file:
    file.write(helper.make_model(graph, opset_imports=sets[:1], ir_version=8).SerializeToString())
for name, field, value in ('narrow', 'int32_data', 300), ('narrow_unsigned', 'uint64_data', 2**32):
    tensor = helper.make_tensor('w', TensorProto.INT8 if name == 'narrow' else TensorProto.UINT32, [2], [1, 2])
    getattr(tensor, field)[1] = value
    save(f'{name}.onnx', [helper.make_node('Cast', ['w'], ['f'], to=1), helper.make_node('Add', ['x', 'f'], ['y'])],
         {'x': [2]}, [tensor])

# Shapes of more elements than are counted; products of these dimensions wrap around in 64 bits.
save('reshape-large.onnx', [helper.make_node('Reshape', ['x', 'shape'], ['y'])], {'x': [2, 3]},
     [array('shape', [-1, 2**32, 2**32])])
save('input-large.onnx', [helper.make_node('Relu', ['x'], ['y'])], {'x': [2**40, 2**40]})

# Declarations between nodes, and of an initializer as an input, that are of another type than the value is.
nodes = [helper.make_node('Cast', ['x'], ['k'], to=TensorProto.INT64), helper.make_node('Cast', ['w'], ['f'], to=1),
         helper.make_node('Cast', ['k'], ['g'], to=1), helper.make_node('Add', ['f', 'g'], ['y'])]
inputs = [helper.make_tensor_value_info('x', TensorProto.FLOAT, [2]), helper.make_tensor_value_info('w', TensorProto.INT32, [2])]
outputs = [helper.make_tensor_value_info('y', TensorProto.FLOAT, [2])]
infos = [helper.make_tensor_value_info('k', TensorProto.FLOAT, [2]), helper.make_tensor_value_info('g', TensorProto.BOOL, [2]),
         helper.make_tensor_value_info('f', TensorProto.FLOAT, [2])]
graph = helper.make_graph(nodes, 'main', inputs, outputs, [array('w', np.array([1, 2], np.int64))], value_info=infos)
with open('value-types.onnx', 'wb') as file:
    file.write(helper.make_model(graph, opset_imports=sets[:1], ir_version=8).SerializeToString())

# The same, of another width; ONNX Runtime refuses these too.
nodes = [helper.make_node('Cast', ['x'], ['h'], to=TensorProto.FLOAT16), helper.make_node('Exp', ['h'], ['e']),
         helper.make_node('Cast', ['e'], ['d'], to=TensorProto.DOUBLE), helper.make_node('Cast', ['d'], ['y'], to=1),
         helper.make_node('ArgMax', ['x'], ['k'])]
infos = [helper.make_tensor_value_info(name, type, None) for name, type in
         [('h', TensorProto.FLOAT16), ('e', TensorProto.FLOAT), ('d', TensorProto.FLOAT16), ('k', TensorProto.INT32)]]
graph = helper.make_graph(nodes, 'main', inputs[:1], outputs, [], value_info=infos)
with open('value-widths.onnx', 'wb') as file:
    file.write(helper.make_model(graph, opset_imports=sets[:1], ir_version=8).SerializeToString())

# A loop whose graph has an error of its own: branches of different shapes.
loop = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
turns (float[2] x, int64 n) => (float[m] y) {
  yes = Constant <value = bool {1}> ()
  y = Loop (n, yes, x) <body = turn (int64 i, bool on, float[k] v) => (bool more, float[j] w) {
    more = Identity (on)
    first = Constant <value = int64 {0}> ()
    late = Less (first, i)
    w = If (late) <then_branch = twice () => (float[p] a) {
      a = Concat <axis = 0> (v, v)
    }, else_branch = once () => (float[q] b) {
      b = Identity (v)
    }>
  }>
}""")
for i, n in enumerate(loop.graph.node):
    n.name = f'n{i}'
loop.graph.node[1].attribute[0].g.node[3].name = 'choice'
with open('loop.onnx', 'wb') as file:
    file.write(loop.SerializeToString())
# An output without a type.
save('no-type.onnx', [relu], row, outputs=[ValueInfoProto(name='y')])

# An attribute without the tensor that its type promises, and one of another opset without a type, which is left out.
filled = helper.make_node('ConstantOfShape', ['s'], ['f'], value=helper.make_tensor('v', TensorProto.FLOAT, [1], [2]))
filled.attribute[0].ClearField('t')
dropped = helper.make_node('Dropout', ['x'], ['d'])
dropped.attribute.add(name='ratio', f=0.5)
save('no-tensor.onnx', [filled, dropped, helper.make_node('Add', ['d', 'f'], ['y'])], row, [array('s', [2, 4])])
