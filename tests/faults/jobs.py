"""The jobs that the tests disturb, and their data."""
import pathlib
import random

from cluster import ROOT, generate_data


class SyncJob:
    """DeepFM in sync mode: the final model has the same bits, whatever was killed and when."""
    spec = ROOT / "deploy" / "jobs" / "quickstart.yaml"
    sets = ["train.epochs=6", "train.batch_size=256", "checkpoint.every_steps=100", "data.shuffle_window_records=10000",
            "train.early_stopping.patience=0", "checkpoint.keep_best=false"]
    samples = 60000

    # Rows of more than 50 MiB on each of two ps, for what happens to memory and spilled rows.
    wide = ["tables.embedding.dim=1024", "train.epochs=1"]

    @classmethod
    def generate(cls, folder):
        generate_data(folder, cls.samples)


class CountingJob:
    """Every number of every row ends as the number of times that the data holds its key, times the epochs: a lost, doubled or
    misplaced update shows, in any mode.

    The table starts at 0 with SGD, learning rate 1. The output is the sum of a sample's rows, and labels lie so far
    above it that Huber's loss pulls with its full delta; delta is the batch size, over which gradients are averaged, so that
    the gradient of each key is exactly -1 for each sample that holds it. All batches are full: records, windows and units
    are multiples of them."""
    batch, shard, window, records, epochs, dim = 64, 256, 2048, 16384, 20, 2
    most_keys = 6  # of one sample
    label = 1e9

    SPEC = """\
name: counting
seed: 7
data:
  format: csv
  header: true
  columns:
    - {{name: label, role: label}}
    - {{name: one, role: sparse, table: counts}}
    - {{name: many, role: sparse, separator: "|", table: counts}}
  train: {{files: train.csv}}
  shuffle_window_records: {window}
  shard_records: {shard}
tables:
  - name: counts
    dim: {dim}
    initializer: {{constant: {{value: 0}}}}
    optimizer: {{learning_rate: 1, sgd: {{}}}}
model:
  name: layers
  layers:
    - {{name: rows, op: add, inputs: [one.counts, many.counts]}}
    - {{name: sum, op: reduce_sum, inputs: [rows], options: {{axes: [1]}}}}
  loss: huber
  huber_delta: {batch}
  optimizer: {{learning_rate: 1, sgd: {{}}}}
train: {{batch_size: {batch}, epochs: {epochs}}}
consistency: {{sparse: async, dense: async}}
checkpoint: {{every_steps: 500}}
"""

    @classmethod
    def write_spec(cls, path):
        pathlib.Path(path).write_text(cls.SPEC.format(batch=cls.batch, shard=cls.shard, window=cls.window, dim=cls.dim,
                                                      epochs=cls.epochs))

    @classmethod
    def generate(cls, folder, seed=1, records=records, rate=0.002):
        """Keys of all sizes, some in nearly every sample, some twice in one, some in a single one."""
        draw = random.Random(seed)
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True)

        def key():
            low = min(int(draw.expovariate(rate)), 5000)
            return low | draw.choice((0, 0, 1 << 32, 1 << 40, 1 << 62))
        with open(folder / "train.csv", "w") as out:
            out.write("label,one,many\n")
            for _ in range(records):
                many = [key() for _ in range(draw.randint(0, 4))]
                if many and draw.random() < 0.2:
                    many.append(many[0])
                out.write(f"{cls.label:.0f},{key()},{'|'.join(map(str, many))}\n")

    @classmethod
    def count(cls, folder):
        """{key: times in an epoch}, from the file itself."""
        counts = {}
        with open(pathlib.Path(folder) / "train.csv") as lines:
            next(lines)
            for line in lines:
                _, one, many = line.rstrip("\n").split(",")
                for key in [one, *filter(None, many.split("|"))]:
                    counts[int(key)] = counts.get(int(key), 0) + 1
        return counts
