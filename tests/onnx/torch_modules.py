"""Modules as people write them in PyTorch, of dense [batch, 3] and vectors [batch, 4, 8]; tests/onnx/torch_test.py exports them."""
import torch
import torch.nn.functional as F
from torch import nn

from shapes import DENSE, DIM, FIELDS

WIDTH = DENSE + FIELDS * DIM


def flat(dense, vectors):
    return torch.cat([dense, vectors.flatten(1)], 1)


class Module(nn.Module):
    """A linear layer behind what `body` makes, of `WIDE` numbers."""

    WIDE = WIDTH

    def __init__(self):
        super().__init__()
        self.make()
        self.out = nn.Linear(self.WIDE, 1)

    def make(self):
        pass

    def forward(self, dense, vectors):
        return self.out(self.body(dense, vectors))


class Fields(Module):
    """What `fields` makes of the vectors, of their shape, beside the dense numbers."""

    def body(self, dense, vectors):
        return flat(dense, self.fields(vectors))


# Attention and sequences.


class MultiHeadAttention(Fields):
    def make(self):
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)

    def fields(self, vectors):
        return self.attention(vectors, vectors, vectors, need_weights=False)[0]


class EncoderLayer(Fields):
    def make(self):
        self.layer = nn.TransformerEncoderLayer(DIM, 2, 16, batch_first=True)

    def fields(self, vectors):
        return self.layer(vectors)


class Encoder(Fields):
    def make(self):
        layer = nn.TransformerEncoderLayer(DIM, 2, 16, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2)

    def fields(self, vectors):
        return self.layers(vectors)


class ScaledDotProduct(Fields):
    def make(self):
        self.query, self.key = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def fields(self, vectors):
        heads = lambda x: x.unflatten(-1, (2, DIM // 2)).transpose(1, 2)
        q, k, v = heads(self.query(vectors)), heads(self.key(vectors)), heads(vectors)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class MaskedAttention(Module):
    WIDE = DIM

    def make(self):
        self.query = nn.Linear(DIM, DIM)
        self.register_buffer("mask", torch.triu(torch.full((FIELDS, FIELDS), float("-inf")), 1))

    def body(self, dense, vectors):
        scores = self.query(vectors) @ vectors.transpose(1, 2) / DIM**0.5 + self.mask
        return (torch.softmax(scores, -1) @ vectors).mean(1)


class FeatureTokens(Module):
    WIDE = DIM

    def make(self):
        self.weight, self.bias = nn.Parameter(torch.randn(DENSE, DIM)), nn.Parameter(torch.randn(DENSE, DIM))
        self.token = nn.Parameter(torch.randn(DIM))
        self.layer = nn.TransformerEncoderLayer(DIM, 2, 16, batch_first=True, norm_first=True)

    def body(self, dense, vectors):
        numbers = dense.unsqueeze(-1) * self.weight + self.bias
        return self.layer(torch.cat([self.token.expand(dense.shape[0], 1, -1), numbers, vectors], 1))[:, 0]


class PaddedSequence(Module):
    """Behind a token, with rows of places, and a mask that hides what is padding or comes later."""

    WIDE = 2 * DIM

    def make(self):
        self.token, self.places = nn.Parameter(torch.randn(1, 1, DIM)), nn.Embedding(FIELDS + 1, DIM)
        self.layer, self.query = nn.TransformerEncoderLayer(DIM, 2, 16, batch_first=True), nn.Linear(DIM, DIM)

    def body(self, dense, vectors):
        batch = vectors.size(0)
        x = torch.cat([self.token.repeat(batch, 1, 1), vectors], 1)
        x = x + self.places(torch.arange(FIELDS + 1).unsqueeze(0).expand(batch, -1))
        padding = torch.cat([torch.zeros(batch, 1, dtype=torch.bool), vectors[:, :, 0] > 1], 1)
        seen = torch.tril((~padding).unsqueeze(1).expand(-1, FIELDS + 1, -1))
        scores = (self.query(x) @ x.transpose(1, 2)).masked_fill(~seen, -1e9)
        return torch.cat([self.layer(x, src_key_padding_mask=padding)[:, 0], (torch.softmax(scores, -1) @ x)[:, -1]], 1)


class Gru(Fields):
    def make(self):
        self.cell = nn.GRU(DIM, DIM, batch_first=True)

    def fields(self, vectors):
        return self.cell(vectors)[0]


class NoBias(Fields):
    def make(self):
        self.gru, self.lstm = nn.GRU(DIM, DIM, batch_first=True, bias=False), nn.LSTM(DIM, DIM, batch_first=True, bias=False)
        self.norm = nn.LayerNorm(DIM)

    def fields(self, vectors):
        return self.norm(self.gru(vectors)[0] + self.lstm(vectors)[0])


class LastOfGru(Module):
    WIDE = DIM

    def make(self):
        self.cell = nn.GRU(DIM, DIM, batch_first=True)

    def body(self, dense, vectors):
        return self.cell(vectors)[1][-1]


class Lstm(Fields):
    def make(self):
        self.cell = nn.LSTM(DIM, DIM, batch_first=True)

    def fields(self, vectors):
        return self.cell(vectors)[0]


class GruBothWays(Module):
    WIDE = 2 * DIM

    def make(self):
        self.cell = nn.GRU(DIM, DIM, num_layers=2, bidirectional=True, batch_first=True)

    def body(self, dense, vectors):
        return self.cell(vectors)[0].mean(1)


class LstmBothWays(Module):
    WIDE = 2 * DIM

    def make(self):
        self.cell = nn.LSTM(DIM, DIM, bidirectional=True, batch_first=True)

    def body(self, dense, vectors):
        return torch.cat(tuple(self.cell(vectors)[1][0]), 1)


class PoolingByAttention(Module):
    WIDE = DIM

    def body(self, dense, vectors):
        weights = vectors.sum(-1, keepdim=True).masked_fill(vectors.abs().sum(-1, keepdim=True) == 0, -1e9)
        return (torch.softmax(weights, 1) * vectors).sum(1)


# Interactions.


class Towers(nn.Module):
    """Two users of one module."""

    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(DIM, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 4))

    def forward(self, dense, vectors):
        return (self.tower(vectors[:, 0]) * self.tower(vectors[:, 1])).sum(-1)


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, dense, vectors):
        return 5 * F.cosine_similarity(self.first(vectors[:, 0]), self.second(vectors[:, 1]), dim=-1)


class PairsByIndex(Module):
    WIDE = FIELDS * (FIELDS - 1) // 2

    def body(self, dense, vectors):
        i, j = torch.triu_indices(FIELDS, FIELDS, 1)
        return (vectors[:, i] * vectors[:, j]).sum(-1)


class CrossExperts(Module):
    """Low-rank cross layers of several experts."""

    def make(self):
        self.u, self.v = (nn.Parameter(torch.randn(2, WIDTH, 4) * 0.1) for _ in range(2))
        self.middle, self.bias = nn.Parameter(torch.randn(2, 4, 4) * 0.1), nn.Parameter(torch.randn(WIDTH, 1) * 0.1)
        self.gates = nn.ModuleList([nn.Linear(WIDTH, 1, bias=False) for _ in range(2)])

    def body(self, dense, vectors):
        x = flat(dense, vectors).unsqueeze(2)
        experts = []
        for e in range(2):
            inner = torch.tanh(self.middle[e] @ torch.tanh(self.v[e].t() @ x))
            experts.append((x * (self.u[e] @ inner + self.bias)).squeeze(2))
        gates = torch.stack([gate(x.squeeze(2)) for gate in self.gates], 1).softmax(1)
        return (torch.stack(experts, 2) @ gates + x).squeeze(2)


class HeadsOfForms(Module):
    WIDE = 1

    def make(self):
        self.first, self.second = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)
        self.form = nn.Parameter(torch.randn(2, 4, 4))

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        a, b = self.first(x).view(-1, 2, 4), self.second(x).view(-1, 2, 4)
        return (a.unsqueeze(2) @ self.form @ b.unsqueeze(-1)).squeeze(-1).sum(1)


class LayerOfEachField(Fields):
    def make(self):
        self.weight, self.bias = nn.Parameter(torch.randn(FIELDS, DIM, DIM) * 0.3), nn.Parameter(torch.randn(FIELDS, 1, DIM))

    def fields(self, vectors):
        return torch.baddbmm(self.bias, vectors.transpose(0, 1), self.weight).transpose(0, 1)


class Experts(Module):
    WIDE = 5

    def make(self):
        self.weight, self.gate = nn.Parameter(torch.randn(3, WIDTH, 5) * 0.2), nn.Linear(WIDTH, 3)

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        experts = torch.relu(torch.einsum("bi,eio->beo", x, self.weight))
        return torch.einsum("beo,be->bo", experts, torch.softmax(self.gate(x), -1))


class LogarithmicNeurons(Module):
    WIDE = 5 * DIM

    def make(self):
        self.mix = nn.Linear(FIELDS, 5)

    def body(self, dense, vectors):
        logs = torch.log(torch.clamp(torch.abs(vectors), min=1e-5)).transpose(2, 1)
        return torch.exp(self.mix(logs)).transpose(2, 1).reshape(-1, 5 * DIM)


class Convolutions(Module):
    WIDE = 5 * DIM

    def make(self):
        self.window = nn.Conv1d(FIELDS, 5, 3, padding=1)

    def body(self, dense, vectors):
        return torch.relu(self.window(vectors)).flatten(1)


class Windows(Module):
    """Over two axes, as CCPM and FGCNN have them; depthwise; with strides and dilations."""

    WIDE = 6 * DIM + FIELDS * DIM + 5 * 4 + 2 * (DIM - 2)

    def make(self):
        self.image, self.depthwise = nn.Conv2d(1, 3, (3, 1), padding=(1, 0)), nn.Conv1d(FIELDS, FIELDS, 3, padding=1, groups=FIELDS)
        self.strided, self.dilated = nn.Conv1d(FIELDS, 5, 2, stride=2), nn.Conv1d(FIELDS, 2, 2, dilation=2)

    def body(self, dense, vectors):
        image = F.max_pool2d(torch.tanh(self.image(vectors.unsqueeze(1))), (2, 1))
        return torch.cat([image.flatten(1), *[layer(vectors).flatten(1) for layer in (self.depthwise, self.strided, self.dilated)]], 1)


class Decoder(Fields):
    """Attention of one sequence over another, whose weights lie in one matrix and are cut apart."""

    def make(self):
        self.layer = nn.TransformerDecoderLayer(DIM, 2, 16, batch_first=True)

    def fields(self, vectors):
        return self.layer(vectors, 0.5 * vectors.flip(1))


# Normalisations, activations, numbers.


class Normalizations(Module):
    WIDE = 6 * FIELDS * DIM

    def make(self):
        self.two, self.plain, self.groups = nn.LayerNorm([FIELDS, DIM]), nn.LayerNorm(DIM, elementwise_affine=False), nn.GroupNorm(2, FIELDS)
        self.turned, self.fields, self.slopes = nn.BatchNorm1d(DIM, momentum=0.0), nn.BatchNorm1d(FIELDS, affine=False, momentum=0.0), nn.PReLU(FIELDS)
        nn.init.normal_(self.turned.weight)

    def body(self, dense, vectors):
        turned = self.turned(vectors.transpose(1, 2)).transpose(1, 2)
        parts = [self.two(vectors), self.plain(vectors), self.groups(vectors), turned, self.fields(vectors), self.slopes(vectors)]
        return torch.cat(parts, 1).flatten(1)


class Gates(Module):
    def make(self):
        self.both, self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        gate = torch.sigmoid(self.first(x))
        return F.glu(self.both(x)) + F.silu(self.first(x)) * self.second(x) + gate * x + (1 - gate) * F.gelu(x, approximate="tanh")


class Powers(Module):
    def body(self, dense, vectors):
        x = flat(dense, vectors)
        positive = x.abs() + 1
        return x**3 + positive**-1 + positive**1.5 + torch.rsqrt(x * x + 1) + torch.sin(x) * torch.cos(x) + torch.sign(x)


class TrainedNumbers(Module):
    """Parameters of one number: an exponent that is a factor too, an exponent, a bound and a slope."""

    def make(self):
        self.power, self.mean, self.most = (nn.Parameter(torch.tensor(value)) for value in (1.75, 3.0, 0.5))
        self.slope = nn.PReLU()

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        powers = self.power * torch.relu(x).pow(self.power) + x.clamp(min=0.1).pow(self.mean)
        return powers + torch.clamp(x, max=self.most) + self.slope(self.slope(x) - 0.5)


class Moments(Module):
    WIDE = 5 * DIM

    def body(self, dense, vectors):
        parts = [vectors.std(1), vectors.var(1, unbiased=False), torch.logsumexp(vectors, 1), vectors.amin(1), torch.prod(vectors, 1)]
        return torch.cat(parts, 1)


class Choices(Fields):
    def fields(self, vectors):
        leaky = torch.where(vectors > 0, vectors, 0.3 * vectors)
        return F.normalize(leaky, dim=-1) + torch.cumsum(vectors, 1) + vectors.flip(1) + torch.roll(vectors, 1, 1)


class Periodic(Module):
    WIDE = DENSE * 8 + FIELDS * DIM

    def make(self):
        self.frequency = nn.Parameter(torch.randn(DENSE, 4))

    def body(self, dense, vectors):
        x = 2 * torch.pi * self.frequency * dense.unsqueeze(-1)
        return torch.cat([torch.cos(x).flatten(1), torch.sin(x).flatten(1), vectors.flatten(1)], 1)


# Parameters alone, before they meet a sample.


class WeightNorm(Module):
    WIDE = 16

    def make(self):
        self.linear = nn.utils.weight_norm(nn.Linear(WIDTH, 16))

    def body(self, dense, vectors):
        return torch.relu(self.linear(flat(dense, vectors)))


class Mixture(Module):
    def make(self):
        self.towers, self.logits = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3)), nn.Parameter(torch.randn(3))

    def body(self, dense, vectors):
        x, weights = flat(dense, vectors), torch.softmax(self.logits, 0)
        return sum(weights[i] * torch.relu(tower(x)) for i, tower in enumerate(self.towers))


class Prototypes(Module):
    WIDE = FIELDS * 5

    def make(self):
        self.prototypes, self.scale = nn.Parameter(torch.randn(5, DIM)), nn.Parameter(torch.randn(1))

    def body(self, dense, vectors):
        cosines = F.normalize(vectors, dim=-1) @ F.normalize(self.prototypes, dim=-1).T
        return (F.softplus(self.scale) * cosines).flatten(1)


class LowRank(Module):
    def make(self):
        self.linear, self.down, self.up = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.randn(4, WIDTH)), nn.Parameter(torch.randn(WIDTH, 4))

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        return self.linear(x) + F.linear(x, 0.5 * (self.up @ self.down))


class Tied(Module):
    def make(self):
        self.weight, self.bias = nn.Parameter(torch.randn(6, WIDTH) * 0.3), nn.Parameter(torch.randn(WIDTH))

    def body(self, dense, vectors):
        x = flat(dense, vectors)
        return torch.tanh(F.linear(F.linear(x, self.weight), self.weight.t(), self.bias)) * self.bias


class WeighedPairs(Fields):
    """As FwFM has them: a symmetric matrix, read by places; and a vector that pools."""

    def make(self):
        self.pairs, self.pool = nn.Parameter(torch.randn(FIELDS, FIELDS)), nn.Parameter(torch.randn(DIM))

    def fields(self, vectors):
        both = (self.pairs + self.pairs.t()) * (1 - torch.eye(FIELDS))
        one = self.pairs[0, 1] * vectors[:, 0] + torch.sigmoid(self.pairs[2, :2]).sum() * vectors[:, 1]
        return both @ vectors + (vectors @ self.pool).unsqueeze(-1) + one.unsqueeze(1)


class Bins(Module):
    """Places of a number between edges whose widths are trained."""

    WIDE = DENSE * 4 + FIELDS * DIM

    def make(self):
        self.widths = nn.Parameter(torch.randn(DENSE, 4))

    def body(self, dense, vectors):
        edges = torch.cumsum(F.softplus(self.widths), 1) - 2
        places = torch.sigmoid((dense.unsqueeze(-1) - edges) / torch.exp(self.widths[:, :1]))
        return torch.cat([places.flatten(1), vectors.flatten(1)], 1)


class BatchInAShape(Fields):
    def make(self):
        self.linear = nn.Linear(DIM, DIM)

    def fields(self, vectors):
        batch, fields, dim = vectors.shape
        ones = torch.ones(batch, 1, dim)
        x = self.linear(vectors.reshape(-1, dim)).reshape(batch, fields, dim)
        return torch.cat([ones, x[:, 1:]], 1).repeat(1, 2, 1)[:, :fields]


class OwnPlaces(Module):
    """Of each sample places that it computes."""

    WIDE = DENSE + 4 * DIM

    def body(self, dense, vectors):
        batch = vectors.size(0)
        place = (dense > 0).long().sum(1)
        samples = torch.arange(batch)
        both = torch.stack([place, FIELDS - 1 - place], 1)
        by_gather = vectors.gather(1, place.view(-1, 1, 1).expand(-1, 1, DIM)).squeeze(1)
        return torch.cat([dense, vectors[samples, place], vectors[samples[:, None], both].flatten(1), by_gather], 1)


MODULES = (MultiHeadAttention, EncoderLayer, Encoder, ScaledDotProduct, MaskedAttention, FeatureTokens, PaddedSequence, Gru, NoBias, LastOfGru,
           GruBothWays, Lstm, LstmBothWays, PoolingByAttention, Towers, Cosine, PairsByIndex, CrossExperts, HeadsOfForms,
           LayerOfEachField, Experts, LogarithmicNeurons, Convolutions, Windows, Decoder, Normalizations, Gates, Powers, TrainedNumbers, Moments,
           Choices, Periodic, WeightNorm, Mixture, Prototypes, LowRank, Tied, WeighedPairs, Bins, BatchInAShape, OwnPlaces)
