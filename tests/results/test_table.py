from logs import empty_log, lively_log, small_log

from simkv.results.metrics import summarize
from simkv.results.table import format_bench_table, format_breakdown, format_stages

BENCH_TABLE = """\
============ Serving Benchmark Result ============
Successful requests:                     2         
Failed requests:                         1         
Maximum request concurrency:             8         
Request rate configured (RPS):           2.00      
Benchmark duration (s):                  2.00      
Total input tokens:                      200       
Total generated tokens:                  4         
Request throughput (req/s):              1.00      
Request goodput (req/s):                 0.50      
Output token throughput (tok/s):         2.00      
Peak output token throughput (tok/s):    3.00      
Peak concurrent requests:                1.00      
Total token throughput (tok/s):          102.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          800.00    
Median TTFT (ms):                        800.00    
P99 TTFT (ms):                           1486.00   
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          100.00    
Median TPOT (ms):                        100.00    
P99 TPOT (ms):                           100.00    
---------------Inter-token Latency----------------
Mean ITL (ms):                           100.00    
Median ITL (ms):                         100.00    
P99 ITL (ms):                            100.00    
=================================================="""  # noqa: W291
BREAKDOWN = """\
--------------------Step Time---------------------
                                seconds      share
compute                           0.880      50.0%
memory                            0.880      50.0%
communication                     0.000       0.0%
host                              0.000       0.0%
busy                              1.760
CPU before steps                  0.040
inputs: 50 % measured, 50 % assumed"""
STAGES = """\
----------------Stage Utilization-----------------
stage 0            █████████···········      44.0%
stage 1            █████████···········      44.0%"""


def test_the_bench_table():
    summary = summarize(small_log(), {"ttft_ms": 200.0}) | {"request_rate": 2, "max_concurrency": 8}
    assert format_bench_table(summary) == BENCH_TABLE


def test_rows_of_options_that_were_not_given_are_left_out():
    summary = summarize(small_log()) | {"request_rate": "inf", "max_concurrency": None}
    text = format_bench_table(summary)
    for row in ("Maximum request concurrency", "Request rate configured", "goodput"):
        assert row not in text


def test_end_to_end_latency_on_request():
    text = format_bench_table(summarize(small_log()), ("e2el",))
    assert "----------------End-to-end Latency----------------\nMean E2EL (ms):" in text


def test_breakdown_and_stages():
    summary = summarize(small_log())
    assert format_breakdown(summary) == BREAKDOWN
    assert format_stages(summary) == STAGES


def test_no_line_is_wider_than_the_table():
    for log in (empty_log(), lively_log(30)):
        summary = summarize(log)
        for text in (format_bench_table(summary), format_breakdown(summary), format_stages(summary)):
            assert max(map(len, text.splitlines())) <= 51  # vLLM's own rows are 51 wide


def test_no_input_is_said_so():
    assert format_breakdown(summarize(empty_log())).endswith("inputs: none")
