"""Writes bench/models/bert_mlm.onnx: a small BERT for masked bytes with random weights, by PyTorch's exporter.

4 layers, 128 wide, 4 heads, 128 bytes, vocabulary 257 (256 is the mask), tied head, post-norm as in BERT. `batch` is symbolic.
usage: bert_mlm.py OUT.onnx          (needs torch and onnx; nothing else in this project needs Python)
"""
import sys
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 257, 128, 128, 4, 4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dense1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.dense2 = nn.Linear(4 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = (batch, length, HEADS, WIDTH // HEADS)
        q, k, v = (f(x).view(heads).transpose(1, 2) for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, WIDTH)
        x = self.norm1(x + self.output(y))
        return self.norm2(x + self.dense2(F.gelu(self.dense1(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layer = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.transform = nn.Linear(WIDTH, WIDTH)
        self.transform_norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, input_ids):
        x = self.norm(self.token(input_ids) + self.position.weight[: input_ids.shape[1]])
        for layer in self.layer:
            x = layer(x)
        x = self.transform_norm(F.gelu(self.transform(x)))
        return x @ self.token.weight.T + self.bias


if __name__ == '__main__':
    torch.manual_seed(1)
    torch.onnx.export(Bert(), torch.zeros(2, LENGTH, dtype=torch.long), sys.argv[1], dynamo=False,
                      opset_version=17, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=['input_ids'], output_names=['logits'],
                      dynamic_axes={'input_ids': {0: 'batch'}, 'logits': {0: 'batch'}})
