"""`pyflame report` on the traces of several ranks of one job: who comes last to a collective, and what is waiting and what is transfer."""
import json

import pytest
import traces

TRANSFER = 20.0


@pytest.fixture
def report(run):
    def call(*args, **kwargs):
        return json.loads(run("report", *args, "--json", **kwargs).stdout)

    return call


def advice(document):
    return {a["id"] for a in document["advice"]}


def job(compute, transfer=TRANSFER, size=None):
    """The work of each rank. `compute[step][rank]`: how long the rank computes before the all-reduce of the step, which begins for all when the
    last rank comes. A broadcast follows, which the first rank leaves at once."""
    ranks = len(compute[0])
    work, now = [[] for _ in range(ranks)], [0.0] * ranks
    for i, step in enumerate(compute):
        group = {"Process Group Name": "0", "Process Group Ranks": str(list(range(ranks))), "Group size": size or ranks, "dtype": "Float"}
        arrive = [now[r] + step[r] for r in range(ranks)]
        leave = max(arrive) + transfer
        for r in range(ranks):
            work[r].append(traces.Work(traces.GEMM, now[r], step[r]))
            work[r].append(traces.Work(traces.ALL_REDUCE, arrive[r], leave - arrive[r], stream=1,
                                       extra=group | {"Collective name": "allreduce", "In msg nelems": 1000 * (i % 3 + 1)}))
            length = 5 if r == 0 else 30
            work[r].append(traces.Work(traces.ALL_REDUCE, leave, length, stream=1, extra=group | {"Collective name": "broadcast", "In msg nelems": 7}))
            now[r] = leave + length
        now = [max(now)] * ranks
    return work


def files(tmp_path, work, clocks=None, skip=(), world=None):
    """One trace for each rank. `clocks`: by how many microseconds a rank's clock is ahead; `skip`: ranks whose recording lacks the first step."""
    paths = []
    for rank, items in enumerate(work):
        if rank in skip:
            items = items[3:]
        ahead = clocks[rank] if clocks else 0
        items = [traces.Work(**{**vars(w), "at": w.at + ahead}) for w in items]
        trace = traces.kineto(traces.Run(work=items))
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world or len(work), "pg_config": [{"pg_name": "0", "ranks": [0, 1], "rank": 99}]}
        paths.append(tmp_path / f"worker{rank}.pt.trace.json")
        paths[-1].write_text(json.dumps(trace))
    return paths


LATE = [[100, 110, 100, 700], [120, 100, 100, 600], [100, 100, 130, 900], [100, 100, 100, 800]]  # rank 3 comes last


def rows(document):
    return {r["rank"]: r for r in document["ranks"]["rows"]}


def assert_late_rank(d):
    r = d["ranks"]
    assert r["straggler"] == 3 and r["compared"] == 4 and r["uneven"] == 4 and r["unmatched"] == 0
    for rank in range(4):
        waiting = sum(max(step) - step[rank] for step in LATE)
        assert rows(d)[rank]["waiting_us"] == pytest.approx(waiting, abs=0.1) and rows(d)[rank]["transfer_us"] == pytest.approx(4 * TRANSFER, abs=0.1)
    assert [rows(d)[rank]["last"] for rank in range(4)] == [0, 0, 0, 4]
    assert rows(d)[3]["caused_us"] == pytest.approx(sum(max(step) - x for step in LATE for x in step), abs=0.5)
    assert d["verdict"].startswith("The ranks wait for rank 3: 9") and "not transfer" in d["verdict"]
    assert "straggler" in advice(d) and "exposed-communication" not in advice(d)


def test_a_late_rank_is_found_in_files_with_different_clocks(report, run, tmp_path):
    paths = files(tmp_path, job(LATE), clocks=[0, 5e6, -3e5, 1234.5])
    d = report(*paths)
    assert_late_rank(d)
    # The rest of the report is of the rank that is late, or of the one that was asked for.
    assert d["ranks"]["reported"] == 3 and d["ranks"]["aligned"] and next(c for c in d["categories"] if c["name"] == "GEMM")["us"] == pytest.approx(3000)
    first = report(*paths, "--rank", 0)
    assert_late_rank(first)
    assert first["ranks"]["reported"] == 0 and next(c for c in first["categories"] if c["name"] == "GEMM")["us"] == pytest.approx(420)
    straggler = next(a for a in d["advice"] if a["id"] == "straggler")
    assert "Rank 3 comes last to 4 of 4 collectives" in straggler["what"] and "kernels take 6" in straggler["what"]
    assert "there is no trace of this rank; got 9; expected one of 0, 1, 2, 3" in run("report", *paths, "--rank", 9, code=1).stderr
    text = run("report", *paths).stdout
    assert "4 collectives compared" in text and "3 (2 of 2)" in text
    assert report(tmp_path)["ranks"] == d["ranks"]  # a folder
    run("report", *paths, "--html", tmp_path / "page.html")
    assert "Others wait for it" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_ranks_that_were_merged_into_one_file(report, tmp_path):
    merged = []
    for rank, items in enumerate(job(LATE)):
        for event in traces.kineto(traces.Run(work=items))["traceEvents"]:
            merged.append(event | {"pid": rank * 100_000_000 + event["pid"], "args": event.get("args", {}) | {"rank": rank}})
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": merged}))
    d = report(path)
    assert_late_rank(d)
    assert not d["ranks"]["aligned"] and d["ranks"]["world"] == 4


def test_recordings_that_begin_at_different_steps(report, tmp_path):
    compute = [[100, 110 + 17 * i, 100, 700 + 90 * (i * i % 5)] for i in range(8)]
    work = job(compute)
    d = report(*files(tmp_path, work, clocks=[0, 9e6, 0, 0], skip=(1,)))
    r = d["ranks"]
    assert r["straggler"] == 3 and r["compared"] == 8 and r["unmatched"] == 0
    assert rows(d)[0]["last"] == 0 and rows(d)[0]["waiting_us"] == pytest.approx(sum(s[3] - s[0] for s in compute), abs=1)
    # With the numbers of PyTorch there is nothing to guess.
    for items in work:
        for i, w in enumerate(x for x in items if "Collective name" in x.extra):
            w.extra["Seq"] = 40 + i
    assert report(*files(tmp_path, work, clocks=[0, 9e6, 0, 0], skip=(1,)))["ranks"]["rows"] == r["rows"]


def test_no_rank_is_blamed_if_it_changes_or_if_ranks_are_missing(report, tmp_path):
    turns = [[600 if r == i % 4 else 100 for r in range(4)] for i in range(8)]
    d = report(*files(tmp_path, job(turns)))
    assert d["ranks"]["straggler"] is None and "uneven-ranks" in advice(d) and "straggler" not in advice(d)
    assert d["verdict"].startswith("The ranks wait for each other")
    few = report(*files(tmp_path, job(LATE), world=8)[2:], "--rank", 3)
    assert few["ranks"]["straggler"] is None and few["ranks"]["partial"] == 4
    assert "whose trace is not given" in next(a for a in few["advice"] if a["id"] == "uneven-ranks")["what"]


def test_slow_transfers_are_no_waiting(report, tmp_path):
    d = report(*files(tmp_path, job([[100, 101, 102, 100]] * 4, transfer=900)))
    assert d["ranks"]["waiting_share"] < 0.01 and d["ranks"]["straggler"] is None
    assert "exposed-communication" in advice(d) and not {"straggler", "uneven-ranks"} & advice(d) and d["verdict"].startswith("Communication takes the most time")
    assert d["verdict"].endswith("check the links: the ranks wait little for each other.")
    c = next(c for c in d["ranks"]["collectives"] if c["bytes"] == 4000)
    assert c["bus_gbs"] == pytest.approx(2 * 3 / 4 * 4000 / 900e-6 / 1e9, abs=1e-3)


def test_collectives_that_do_not_match_are_not_compared(report, run, tmp_path):
    work = job(LATE)
    for i, w in enumerate(work[1]):
        if "Collective name" in w.extra:
            w.extra["In msg nelems"] = 55 + i
    paths = files(tmp_path, work[:2])
    d = report(*paths)
    assert d["ranks"]["compared"] == 0 and d["ranks"]["unmatched"] == 16 and d["ranks"]["straggler"] is None
    assert "waiting and transfer are not known" in " ".join(run("report", *paths).stdout.split())


def test_one_rank_does_not_tell_waiting_from_transfer(report, tmp_path):
    d = report(files(tmp_path, job([[100, 100]] * 4, transfer=900))[0])
    assert d["ranks"] is None and "traces of all ranks" in next(a for a in d["advice"] if a["id"] == "exposed-communication")["what"]
    assert "give the traces of all ranks" in d["verdict"]
