#!/usr/bin/env python3
"""Judges a replay of the recorded digits run against its f32 original.

  evaluate-digits.py --data DIR --result OUT.safetensors

DIR is what `record-digits.py` wrote. OUT holds the parameters after the
replay: each NAME in F32, F16, BF16, F8_E4M3 or F8_E5M2, with an optional F32
scalar NAME.scale_inv that multiplies the decoded payload, and possibly
NAME.master_weight, which may have a NAME.master_weight.scale_inv likewise.

The distance of a tensor is the error of its *change*, ||w - expected|| /
||expected - initial||: relative to the weights themselves, even a run that
never updates them would look close. It is shown for the master weight and
for the weight that the model reads; the master weight, or the weight where
there is none, has to stay below MAX_DISTANCE. The accuracy is that of the
weights that the model reads.

Exit status: 0 if both criteria hold, 1 if one does not (a line says which),
2 if the files cannot be compared. Needs nothing but the standard library.
"""

import argparse
import math
import os
import struct
import sys
from operator import mul

import safetensors_io

PARAMETERS = {
    "fc1.weight": (64, 64),
    "fc1.bias": (64,),
    "fc2.weight": (10, 64),
    "fc2.bias": (10,),
}
MAX_DISTANCE = 0.5
MAX_ACCURACY_LOSS_PERCENT = 2


class InputError(Exception):
    """Input that cannot be judged; the message is for the user."""


def f8_table(exponent_bits, mantissa_bits, has_infinity):
    """Returns the value of each of the 256 payloads of an FP8 format."""
    bias = 2 ** (exponent_bits - 1) - 1
    top_exponent = 2**exponent_bits - 1
    top_mantissa = 2**mantissa_bits - 1
    table = []
    for payload in range(256):
        sign = -1.0 if payload & 0x80 else 1.0
        exponent = (payload & 0x7F) >> mantissa_bits
        mantissa = payload & top_mantissa
        if has_infinity and exponent == top_exponent:
            magnitude = math.nan if mantissa else math.inf
        elif exponent == top_exponent and mantissa == top_mantissa:
            magnitude = math.nan
        elif exponent == 0:
            magnitude = math.ldexp(mantissa, 1 - bias - mantissa_bits)
        else:
            magnitude = math.ldexp(
                mantissa + top_mantissa + 1, exponent - bias - mantissa_bits)
        table.append(sign * magnitude)
    return table


F8_TABLES = {
    "F8_E4M3": f8_table(4, 3, has_infinity=False),
    "F8_E5M2": f8_table(5, 2, has_infinity=True),
}


def decode(name, tensor):
    """Returns the elements of a floating-point tensor as a list of floats."""
    data = tensor.data
    if tensor.dtype in F8_TABLES:
        table = F8_TABLES[tensor.dtype]
        return [table[payload] for payload in data]
    if tensor.dtype == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if tensor.dtype == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if tensor.dtype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        wide = struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves))
        return list(struct.unpack(f"<{len(halves)}f", wide))
    raise InputError(f"tensor '{name}' has dtype {tensor.dtype}, "
                     "which is no weight format")


class TensorFile:
    """The tensors of one file, with errors that name the file."""

    def __init__(self, path):
        self.path = path
        try:
            self.tensors = safetensors_io.read(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except safetensors_io.SafetensorsError as error:
            raise InputError(str(error)) from None

    def get(self, name):
        if name not in self.tensors:
            raise InputError(f"{self.path}: no tensor '{name}'")
        return self.tensors[name]

    def values(self, name, shape):
        """Returns tensor `name` dequantized by its scale_inv, if any."""
        tensor = self.get(name)
        if tensor.shape != shape:
            raise InputError(
                f"{self.path}: tensor '{name}' has shape "
                f"{list(tensor.shape)}, expected {list(shape)}")
        try:
            values = decode(name, tensor)
        except InputError as error:
            raise InputError(f"{self.path}: {error}") from None
        scale_inv_name = f"{name}.scale_inv"
        if scale_inv_name not in self.tensors:
            return values
        scale_inv = self.get(scale_inv_name)
        if scale_inv.dtype != "F32" or len(scale_inv.data) != 4:
            raise InputError(
                f"{self.path}: tensor '{scale_inv_name}' is {scale_inv.dtype} "
                f"{list(scale_inv.shape)}, expected one F32")
        (factor,) = struct.unpack("<f", scale_inv.data)
        return [value * factor for value in values]

    def parameters(self):
        return {n: self.values(n, shape) for n, shape in PARAMETERS.items()}


def load_samples(path):
    """Returns the test inputs, as rows of pixels / 16, and their labels."""
    file = TensorFile(path)
    images, labels = file.get("images"), file.get("labels")
    count = len(labels.data)
    if labels.dtype != "U8" or labels.shape != (count,) or count == 0:
        raise InputError(f"{path}: tensor 'labels' is not U8 [samples]")
    if images.dtype != "U8" or images.shape != (count, 64):
        raise InputError(f"{path}: tensor 'images' is not U8 [{count}, 64]")
    rows = [[pixel / 16 for pixel in images.data[64 * i : 64 * (i + 1)]]
            for i in range(count)]
    return rows, labels.data


def norm_of_difference(a, b):
    differences = [x - y for x, y in zip(a, b)]
    return math.sqrt(sum(map(mul, differences, differences)))


def change_distance(values, expected, initial):
    """Returns ||values - expected|| / ||expected - initial||."""
    error = norm_of_difference(values, expected)
    change = norm_of_difference(expected, initial)
    if change == 0:
        return 0.0 if error == 0 else math.inf
    return error / change


def count_correct(parameters, rows, labels):
    """Returns how many samples the classifier assigns to their label."""

    def layer(name, width):
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return [(weight[width * i : width * (i + 1)], bias[i])
                for i in range(len(bias))]

    hidden_layer = layer("fc1", 64)
    output_layer = layer("fc2", 64)
    correct = 0
    for row, label in zip(rows, labels):
        hidden = [sum(map(mul, weight, row)) + bias
                  for weight, bias in hidden_layer]
        # Unlike max(0, x), this keeps a NaN.
        hidden = [0.0 if x <= 0 else x for x in hidden]
        logits = [sum(map(mul, weight, hidden)) + bias
                  for weight, bias in output_layer]
        if any(map(math.isnan, logits)):
            continue
        correct += logits.index(max(logits)) == label
    return correct


def evaluate(data, result_path):
    """Prints the comparison and returns the failed criteria as sentences."""
    result = TensorFile(result_path)
    initial = TensorFile(os.path.join(data, "params.safetensors")).parameters()
    expected = TensorFile(
        os.path.join(data, "expected.safetensors")).parameters()
    rows, labels = load_samples(os.path.join(data, "test.safetensors"))
    weights = result.parameters()
    failures = []

    print("distance from torch.optim.AdamW in f32, relative to its change")
    print(f"  {'parameter':<12}{'master weight':>18}{'weight':>18}")
    for name, shape in PARAMETERS.items():
        judged_name = name
        judged = change_distance(weights[name], expected[name], initial[name])
        weight_cell = f"{result.get(name).dtype:>8}{judged:>10.4f}"
        master_cell = "-"
        master_name = f"{name}.master_weight"
        if master_name in result.tensors:
            master = result.values(master_name, shape)
            judged_name = master_name
            judged = change_distance(master, expected[name], initial[name])
            master_cell = f"{result.get(master_name).dtype:>8}{judged:>10.4f}"
        print(f"  {name:<12}{master_cell:>18}{weight_cell:>18}")
        if not judged < MAX_DISTANCE:  # also when it is NaN
            failures.append(f"distance of '{judged_name}' is {judged:.4f}, "
                            f"not below {MAX_DISTANCE}")

    def correct_with(description, parameters):
        correct = count_correct(parameters, rows, labels)
        print(f"  {description:<30}{100 * correct / len(rows):>7.2f} %"
              f"  ({correct} of {len(rows)})")
        return correct

    print("accuracy on the test samples")
    result_correct = correct_with("result", weights)
    f32_correct = correct_with("torch.optim.AdamW in f32", expected)
    correct_with("initial weights", initial)
    loss_percent = 100 * (f32_correct - result_correct) / len(rows)
    if loss_percent > MAX_ACCURACY_LOSS_PERCENT:
        failures.append(
            f"accuracy is {loss_percent:.2f} percentage points below f32, "
            f"more than {MAX_ACCURACY_LOSS_PERCENT}")
    return failures


def main():
    parser = argparse.ArgumentParser(
        description="Judge a replay of the digits run against f32 training.")
    parser.add_argument("--data", required=True, metavar="DIR",
                        help="folder that record-digits.py wrote")
    parser.add_argument("--result", required=True, metavar="OUT.safetensors",
                        help="parameters after the replay")
    arguments = parser.parse_args()
    try:
        failures = evaluate(arguments.data, arguments.result)
    except InputError as error:
        sys.stdout.flush()
        print(f"evaluate-digits: error: {error}", file=sys.stderr)
        return 2
    for failure in failures:
        print(f"FAIL: {failure}")
    if not failures:
        print("PASS")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
