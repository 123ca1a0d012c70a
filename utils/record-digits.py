#!/usr/bin/python3
"""Records a short f32 training run on scikit-learn's handwritten digits.

The record is the input of the integration test that replays the gradients
through FP8 optimizer steps and asks whether the classifier still works
(`evaluate-digits.py` judges that). Written to
test/Integration/CPU/Inputs/digits, or to --output:

  params.safetensors    the initial f32 parameters
  grads/1.safetensors   the f32 gradients of step 1, and so on up to step 50,
                        each taken at the parameters that the f32 run had then
  expected.safetensors  f32 parameters and moments after the last step; the
                        moments are NAME.first_moment and NAME.second_moment
  test.safetensors      held-out samples: images U8 [360, 64] with values
                        0 to 16, labels U8 [360]

The model is a 64-64-10 perceptron with ReLU that reads pixels / 16; its
parameters are fc1.weight, fc1.bias, fc2.weight and fc2.bias, with weights
[outputs, inputs]. The optimizer is torch.optim.AdamW with lr 1e-2, betas 0.9
and 0.999, eps 1e-8 and weight_decay 0.01, over mini-batches of BATCH_SIZE.

The data in the tree was recorded on x86-64 with Debian 12's python3-torch
1.13.0a0, python3-sklearn 1.2.1 and python3-numpy 1.24.2. To record again:

  apt-get install python3-torch python3-sklearn
  /usr/bin/python3 utils/record-digits.py

Seeds are fixed and one thread computes, so a second run on the same machine
writes the same bytes. Another CPU or BLAS may sum in another order; the
files then differ in last bits but serve as well.
"""

import argparse
import pathlib

import numpy as np
import sklearn
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import safetensors_io

STEPS = 50
BATCH_SIZE = 512
TEST_SIZE = 360
SEED = 0
DEFAULT_OUTPUT = (pathlib.Path(__file__).resolve().parent.parent
                  / "test/Integration/CPU/Inputs/digits")


def load_split():
    """Returns train images, test images, train labels and test labels."""
    digits = load_digits()
    return train_test_split(
        digits.data.astype(np.uint8), digits.target.astype(np.uint8),
        test_size=TEST_SIZE, random_state=SEED, stratify=digits.target)


def to_inputs(images):
    return torch.from_numpy(images).to(torch.float32) / 16


def make_batches(count):
    """Yields STEPS index arrays; each pass over the samples is shuffled."""
    generator = np.random.RandomState(SEED)
    order = np.empty(0, dtype=np.int64)
    for _ in range(STEPS):
        if len(order) < BATCH_SIZE:
            order = np.concatenate([order, generator.permutation(count)])
        yield order[:BATCH_SIZE]
        order = order[BATCH_SIZE:]


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(64, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, inputs):
        return self.fc2(torch.relu(self.fc1(inputs)))


def from_array(dtype, array):
    little_endian = array.astype(array.dtype.newbyteorder("<"))
    return safetensors_io.Tensor(dtype, array.shape, little_endian.tobytes())


def from_torch(tensor):
    return from_array("F32", tensor.detach().numpy())


def parameters_of(model):
    return {name: from_torch(p) for name, p in model.named_parameters()}


def accuracy(model, inputs, labels):
    with torch.no_grad():
        predictions = model(inputs).argmax(dim=1).numpy()
    return (predictions == labels).mean()


def record(output):
    """Trains the classifier and writes the record below folder `output`."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    (output / "grads").mkdir(parents=True, exist_ok=True)

    train_images, test_images, train_labels, test_labels = load_split()
    train_inputs = to_inputs(train_images)
    train_targets = torch.from_numpy(train_labels.astype(np.int64))
    test_inputs = to_inputs(test_images)
    safetensors_io.write(output / "test.safetensors", {
        "images": from_array("U8", test_images),
        "labels": from_array("U8", test_labels),
    })

    model = Classifier()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-8,
        weight_decay=0.01, foreach=False)
    initial_accuracy = accuracy(model, test_inputs, test_labels)
    safetensors_io.write(output / "params.safetensors", parameters_of(model))

    for step, batch in enumerate(make_batches(len(train_inputs)), start=1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(train_inputs[batch]), train_targets[batch])
        loss.backward()
        safetensors_io.write(
            output / "grads" / f"{step}.safetensors",
            {name: from_torch(p.grad) for name, p in model.named_parameters()})
        optimizer.step()

    expected = parameters_of(model)
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        expected[f"{name}.first_moment"] = from_torch(state["exp_avg"])
        expected[f"{name}.second_moment"] = from_torch(state["exp_avg_sq"])
    safetensors_io.write(output / "expected.safetensors", expected)

    final_accuracy = accuracy(model, test_inputs, test_labels)
    print(f"torch {torch.__version__}, scikit-learn {sklearn.__version__}, "
          f"numpy {np.__version__}")
    print(f"loss of the last mini-batch {loss.item():.4f}")
    print(f"test accuracy {initial_accuracy:.2%} before, "
          f"{final_accuracy:.2%} after {STEPS} steps")


def main():
    parser = argparse.ArgumentParser(
        description="Record a training run on scikit-learn's digits.")
    parser.add_argument("--output", type=pathlib.Path, metavar="DIR",
                        default=DEFAULT_OUTPUT,
                        help="folder to write to (default: the test's inputs)")
    record(parser.parse_args().output)


if __name__ == "__main__":
    main()
