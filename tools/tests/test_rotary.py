"""Rotary positions: what they are for, and their gradient."""

import numpy as np
import pytest
import tensorflow as tf

from gorbit_export import rotary

WIDTH, HEADS = 6, 4


def turned(x: np.ndarray, positions: list[int]) -> tf.Tensor:
    tables = rotary.tables(tf.constant(positions, tf.int32), WIDTH, 100.0)
    return rotary.rotary(tf.constant(x), *tables, HEADS)


def data(rows: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(rows, HEADS * WIDTH + 5)).astype(np.float32)


def test_pairs_are_turned_as_complex_numbers():
    x, positions = data(3), [0, 2, 9]
    got = turned(x, positions).numpy()
    heads = x[:, : HEADS * WIDTH].reshape(3, HEADS, 2, WIDTH // 2).astype(np.float64)
    angles = np.array(positions)[:, None] / 100.0 ** (np.arange(0, WIDTH, 2) / WIDTH)
    want = (heads[:, :, 0] + 1j * heads[:, :, 1]) * np.exp(1j * angles)[:, None]
    want = np.stack([want.real, want.imag], 2).reshape(3, -1)
    np.testing.assert_allclose(got[:, : HEADS * WIDTH], want, atol=1e-6)
    np.testing.assert_array_equal(got[:, HEADS * WIDTH :], x[:, HEADS * WIDTH :])
    np.testing.assert_array_equal(got[0], x[0])


def test_products_depend_on_distances_alone():
    x = data(2)

    def product(*positions: int) -> np.ndarray:
        a, b = turned(x, list(positions)).numpy()[:, : HEADS * WIDTH]
        return (a * b).reshape(HEADS, WIDTH).sum(1)

    np.testing.assert_allclose(product(3, 5), product(40, 42), atol=1e-5)
    assert np.abs(product(3, 5) - product(3, 6)).max() > 1e-3


def test_the_gradient_turns_back():
    x, dy = data(4), data(8)[4:]
    positions = [1, 5, 6, 30]
    with tf.GradientTape() as tape:
        variable = tf.Variable(x)
        tables = rotary.tables(tf.constant(positions, tf.int32), WIDTH, 100.0)
        y = tf.reduce_sum(rotary.rotary(variable, *tables, HEADS) * dy)
    back = turned(tape.gradient(y, variable).numpy(), positions)
    np.testing.assert_allclose(back, dy, atol=1e-5)


def test_narrow_products_are_turned_in_float32():
    x = tf.cast(data(3), tf.bfloat16)
    tables = rotary.tables(tf.constant([7, 8, 9], tf.int32), WIDTH, 100.0)
    got = rotary.rotary(x, *tables, HEADS)
    want = rotary.rotary(tf.cast(x, tf.float32), *tables, HEADS)
    assert got.dtype == tf.bfloat16
    np.testing.assert_array_equal(got, tf.cast(want, tf.bfloat16))


def test_more_heads_than_columns_are_refused():
    tables = rotary.tables(tf.constant([1], tf.int32), WIDTH, 100.0)
    with pytest.raises(ValueError, match="5 heads of width 6 do not fit into 29 columns"):
        rotary.rotary(tf.constant(data(1)), *tables, 5)
