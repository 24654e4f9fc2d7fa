"""Where a step's processor time goes."""

import pytest

import profile_step

REPORT = """# Samples: 3
#
    50.00%\t[JIT] tid 7\t[.] 0x00007f257c03623c
    12.00%\ttrain.test\t[.] attention_gradient_avx512
     3.00%\ttrain.test\t[.] score_avx512.isra.0
     4.00%\ttrain.test\t[.] norm_gradient_avx512
     5.00%\ttrain.test\t[.] adam_avx512
     1.00%\tlibtensorflow_cc.so.2\t[.] dnnl::impl::cpu::gemm_driver
     2.00%\tlibtensorflow_cc.so.2\t[.] tsl::random::PhiloxRandom::operator()
     6.00%\tlibtensorflow_cc.so.2\t[.] Eigen::internal::TensorExecutor<x>::run
     7.00%\tlibtensorflow_framework.so.2\t[.] tensorflow::ExecutorState::Process
    10.00%\tlibc.so.6\t[.] malloc
"""


def test_every_function_is_of_one_part():
    shares = profile_step.sort(REPORT)
    assert shares == {
        "matrix products": 51,
        "attention's own kernels": 15,
        "dropout, residual and layer norm, kernels": 4,
        "AdamW and the gradient's norm": 5,
        "random numbers": 2,
        "TensorFlow's other operations on numbers": 6,
        "TensorFlow's executor and the rest of it": 7,
        "system and C library": 10,
    }
    assert sum(shares.values()) == 100


def test_the_table_adds_up():
    shares = {"a": profile_step.sort(REPORT), "b": {"matrix products": 40.0}}
    rows = profile_step.table(shares, {"a": 0.5, "b": 0.2}).splitlines()
    assert rows[0] == "| ms of processor time per step, and share | a | b |"
    assert rows[2] == "| matrix products | 255 (51.0 %) | 200 (100.0 %) |"
    assert rows[-1] == "| all | 500 | 200 |"
    milliseconds = [float(row.split("|")[2].split("(")[0]) for row in rows[2:-1]]
    assert sum(milliseconds) == pytest.approx(500, abs=len(milliseconds) / 2)
