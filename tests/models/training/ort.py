"""Writes runtime/: a model, and what ONNX Runtime's training makes of it. Needs onnxruntime-training 1.19."""
import os
import sys
import types

for name in 'amp', 'optim':  # these import torch, for what is not used here
    sys.modules['onnxruntime.training.' + name] = types.ModuleType(name)

import onnx
from onnx import helper
from onnxruntime.training import artifacts
from make import full, value, weight

nodes = [helper.make_node('Gemm', ['x', '0.weight', '0.bias'], ['h'], '/0/Gemm', transB=1),
         helper.make_node('Relu', ['h'], ['r'], '/Relu'),
         helper.make_node('LayerNormalization', ['r', '1.gain', '1.shift'], ['n', 'mean', 'deviation'], '/1/Norm',
                          epsilon=1e-5),
         helper.make_node('BatchNormalization', ['n', '2.gain', '2.shift', '2.mean', '2.variance'],
                          ['b', 'b_mean', 'b_variance'], '/2/Norm', training_mode=1, epsilon=1e-5, momentum=0.9),
         helper.make_node('Gemm', ['b', '3.weight', '3.bias'], ['logits'], '/3/Gemm', transB=1)]
weights = [weight('0.weight', 8, 4), full('0.bias', 0.1, 8), full('1.gain', 1, 8), full('1.shift', 0, 8),
           full('2.gain', 1, 8), full('2.shift', 0, 8), full('2.mean', 0, 8), full('2.variance', 1, 8),
           weight('3.weight', 3, 8), full('3.bias', 0, 3)]
graph = helper.make_graph(nodes, 'main', [value('x', 'batch', 4)], [value('logits', 'batch', 3)], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=8)
frozen = ['1.shift', '2.mean', '2.variance']
os.makedirs('runtime', exist_ok=True)
onnx.save(model, 'runtime/model.onnx')
artifacts.generate_artifacts(model, [w.name for w in weights if w.name not in frozen], frozen,
                             loss=artifacts.LossType.CrossEntropyLoss, artifact_directory='runtime')
