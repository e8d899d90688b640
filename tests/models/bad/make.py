"""Writes many.onnx, with all that can be wrong at once, and idle.onnx beside it. Needs onnx; the tests need only the
files."""
import numpy as np
from onnx import helper, numpy_helper, TensorProto


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
