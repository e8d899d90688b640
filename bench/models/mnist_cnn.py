"""Writes bench/models/mnist_cnn.onnx: the digit classifier of the Amos authors' notebook, random weights, by PyTorch's exporter.

Two 3x3 convolutions (32, 64) each with ReLU and 2x2 average pooling, 256 hidden units, 10 classes. `batch` is symbolic.
usage: mnist_cnn.py OUT.onnx          (needs torch and onnx; nothing else in this project needs Python)
"""
import sys
import torch
from torch import nn
from torch.nn import functional as F


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(7 * 7 * 64, 256)
        self.fc2 = nn.Linear(256, 10)
        for p in self.parameters():  # Flax's defaults: truncated normal of variance 1/fan_in, zero biases
            if p.dim() > 1:
                std = p[0].numel() ** -0.5 / 0.87962566
                nn.init.trunc_normal_(p, std=std, a=-2 * std, b=2 * std)
            else:
                nn.init.zeros_(p)

    def forward(self, image):
        x = F.avg_pool2d(F.relu(self.conv1(image)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


if __name__ == '__main__':
    torch.manual_seed(1)
    torch.onnx.export(CNN(), torch.zeros(2, 1, 28, 28), sys.argv[1], dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=['image'], output_names=['logits'],
                      dynamic_axes={'image': {0: 'batch'}, 'logits': {0: 'batch'}})
