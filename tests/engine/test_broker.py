"""The broker on a virtual clock: what silence means, exactly; and that each ask ends in one verdict, told once."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from engine.agent.calls import Call, Description
from engine.asks import LOOK_SECONDS, Asker, Verdict, Wanted
from engine.broker import Parked
from engine.frames import draft
from tests.engine.ask_rows import TURN, House, wanted


@pytest.fixture
async def house(nursery: trio.Nursery) -> House:
    house = House()
    nursery.start_soon(house.broker.run)
    return house


async def asked(house: House, *calls: Wanted) -> None:
    await house.broker.decide(TURN, calls or [wanted()])


async def verdict(house: House, call: str = "k1") -> Verdict:
    return await house.broker.verdict(call)


@pytest.mark.trio
async def test_a_person_approves_and_the_turn_goes_on(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    assert house.notebook.runs["r"].state == "waiting"
    [ask] = house.told("ask")
    assert (ask["command"], ask["why"], ask["seconds"]) == ("touch made", "because", 300)
    assert house.answer("approve", message="go")
    given = await verdict(house)
    assert given.approved
    assert "go" in given.text
    assert [row.fields for row in given.rows] == [{"id": ask["ask"], "used": True}]
    assert house.runs()[-2:] == ["waiting", "resumed"]
    [told] = house.told("verdict")
    assert (told["verdict"], told["reason"], told["scope"]) == ("approve", "person", "once")
    assert house.frames[-2].by == "ada"


@pytest.mark.trio
async def test_a_person_denies_and_the_model_reads_why(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    house.answer("deny", message="not on a Friday")
    given = await verdict(house)
    assert not given.approved
    assert "not on a Friday" in given.text
    assert "ada" in given.text


@pytest.mark.trio
async def test_silence_for_the_whole_time_is_a_no_with_its_reason(house: House, autojump_clock: MockClock) -> None:
    """Invariant 5."""
    began = trio.current_time()
    await asked(house)
    given = await verdict(house)
    assert trio.current_time() - began == pytest.approx(300, abs=0.1)
    assert (given.verdict, given.reason, given.by) == ("deny", "timeout", None)
    assert "nobody answered within 300 s" in given.text
    assert "decision, not a failure" in given.text
    assert not house.answer("approve", ask=given.ask)
    assert len(house.told("verdict")) == 1


@pytest.mark.trio
async def test_nobody_there_is_a_no_after_the_grace(house: House, autojump_clock: MockClock) -> None:
    house.present = False
    began = trio.current_time()
    await asked(house)
    given = await verdict(house)
    assert trio.current_time() - began == pytest.approx(60, abs=0.1)
    assert given.reason == "no_operator"
    assert "nobody was there" in given.text
    assert "60 s" in given.text


@pytest.mark.trio
async def test_the_grace_counts_from_the_last_operator_seen(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    began = trio.current_time()
    await trio.sleep(100)
    house.present = False
    given = await verdict(house)
    assert given.reason == "no_operator"
    assert 160 - LOOK_SECONDS <= trio.current_time() - began <= 160.1


@pytest.mark.trio
async def test_who_comes_back_within_the_grace_can_still_answer(house: House, autojump_clock: MockClock) -> None:
    house.present = False
    await asked(house)
    await trio.sleep(50)
    house.present = True
    await trio.sleep(200)
    assert house.answer("approve")
    assert (await verdict(house)).approved


@pytest.mark.trio
async def test_after_one_such_no_the_others_of_that_turn_are_not_waited_for_until_somebody_comes(
    house: House, autojump_clock: MockClock
) -> None:
    house.present = False
    await asked(house)
    await verdict(house)
    began = trio.current_time()
    await asked(house, wanted("touch other", "k2"))
    assert (await verdict(house, "k2")).reason == "no_operator"
    assert trio.current_time() - began < 1
    assert len(house.told("ask")) == len(house.told("verdict")) == 2  # both stand in the journal
    house.present = True
    await trio.sleep(2 * LOOK_SECONDS)
    house.present = False
    began = trio.current_time()
    await asked(house, wanted("touch third", "k3"))
    assert (await verdict(house, "k3")).reason == "no_operator"
    assert trio.current_time() - began > 50


@pytest.mark.trio
async def test_a_restart_extends_no_time_but_gives_the_grace_anew(autojump_clock: MockClock) -> None:
    house = House()
    house.present = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        began = trio.current_time()
        await asked(house)
        await trio.sleep(50)
        await house.restart(nursery)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        await trio.sleep(50)
        house.present = True  # else it would end at 110 s
        assert not house.told("verdict")
        assert (await verdict(house)).reason == "timeout"
        assert trio.current_time() - began == pytest.approx(300, abs=0.1)
        assert len(house.told("ask")) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_verdict_given_while_no_engine_ran_is_told_when_one_wakes(autojump_clock: MockClock) -> None:
    house = House()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        await house.restart(nursery)
    house.answer("approve")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        assert (await verdict(house)).approved
        await trio.testing.wait_all_tasks_blocked()
        assert len(house.told("verdict")) == len(house.told("ask")) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_stopped_turn_ends_its_asks_as_cancelled(house: House, autojump_clock: MockClock) -> None:
    await asked(house, wanted(), wanted("touch other", "k2"))
    house.fold(draft("run", event="cancelling", run_id="r", cell_id="c"))
    await house.broker.cancel("r")
    assert {body["reason"] for body in house.told("verdict")} == {"cancelled"}
    assert (await verdict(house)).reason == (await verdict(house, "k2")).reason == "cancelled"
    assert house.notebook.runs["r"].state == "cancelling"
    assert not house.answer("approve", ask=house.told("ask")[0]["ask"])


@pytest.mark.trio
async def test_an_ask_whose_turn_is_gone_does_not_stay(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    house.fold(draft("run", event="ended", run_id="r", cell_id="c", status="error", reason="lost"))
    house.broker.poke()
    await trio.testing.wait_all_tasks_blocked()
    assert [body["reason"] for body in house.told("verdict")] == ["cancelled"]


@pytest.mark.trio
async def test_asks_of_one_round_stand_side_by_side_each_with_its_time(house: House, autojump_clock: MockClock) -> None:
    await asked(house, wanted(), wanted("touch other", "k2"))
    assert len(house.told("ask")) == 2
    assert house.runs().count("waiting") == 1
    await trio.sleep(100)
    await asked(house, wanted("touch third", "k3"))
    house.answer("approve", ask=house.told("ask")[1]["ask"])
    assert (await verdict(house, "k2")).approved
    assert house.notebook.runs["r"].state == "waiting"  # for the others
    began = trio.current_time()
    assert (await verdict(house)).reason == "timeout"
    assert trio.current_time() - began == pytest.approx(200, abs=0.1)
    assert (await verdict(house, "k3")).reason == "timeout"
    assert trio.current_time() - began == pytest.approx(300, abs=0.1)
    assert house.runs().count("resumed") == 1


@pytest.mark.trio
async def test_policy_and_rules_free_what_comes_and_decide_nothing_that_waits(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house)
    house.fold(draft("session", event="policy", policy="all"))
    await asked(house)  # the turn is taken up again
    await trio.testing.wait_all_tasks_blocked()
    assert house.told("verdict") == []
    await asked(house, wanted("touch other", "k2"))
    assert (await verdict(house, "k2")).reason == "policy"
    assert len(house.told("ask")) == 1
    house.answer("deny")
    assert not (await verdict(house)).approved


@pytest.mark.trio
async def test_an_approval_of_the_kind_makes_a_rule_in_the_same_step_and_only_for_what_comes(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house, wanted(), wanted(call="k2"))
    first, second = house.told("ask")
    house.answer("approve", ask=first["ask"], scope="kind")
    await verdict(house)
    [rule] = house.notebook.rules.values()
    assert rule["words"] == ["touch", "made"]
    at = [frame.seq for frame in house.frames if frame.kind == "verdict" or frame.body.get("event") == "rule"]
    assert at[1] == at[0] + 1
    assert house.asks[second["ask"]].open
    await asked(house, wanted(call="k3"), wanted("touch made; rm x", "k4"))
    assert (await verdict(house, "k3")).reason == "rule"
    assert len(house.told("ask")) == 3


@pytest.mark.trio
async def test_an_approval_counts_for_exactly_what_was_asked(house: House, autojump_clock: MockClock) -> None:
    await asked(house, wanted(facts=["sha 1"]))
    house.answer("approve")
    assert (await verdict(house)).approved
    assert await house.broker.confirm(TURN, wanted(facts=["sha 1"]))
    assert not await house.broker.confirm(TURN, wanted(facts=["sha 2"]))
    again = house.told("ask")[-1]
    assert "changed" in again["again"]
    house.answer("approve")
    assert (await verdict(house)).approved
    assert await house.broker.confirm(TURN, wanted(facts=["sha 2"]))
    assert len(house.told("ask")) == len(house.told("verdict")) == 2


@pytest.mark.trio
async def test_what_changes_while_it_waits_is_asked_anew_and_the_old_ask_closes(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house, wanted(facts=["sha 1"]))
    await asked(house, wanted(facts=["sha 2"]))
    await trio.testing.wait_all_tasks_blocked()
    assert [body["reason"] for body in house.told("verdict")] == ["changed"]
    assert not house.answer("approve", ask=house.told("ask")[0]["ask"])
    assert house.answer("approve")
    assert (await verdict(house)).approved


@pytest.mark.trio
async def test_an_approval_is_used_once(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    house.answer("approve")
    given = await verdict(house)
    await house.step(lambda _: ([], given.rows))
    assert not await house.broker.confirm(TURN, wanted())
    assert "used" in house.told("ask")[-1]["again"]


@pytest.mark.trio
async def test_an_approval_that_is_not_begun_on_in_time_is_asked_for_again(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house)
    house.answer("approve")
    await verdict(house)
    await trio.sleep(14 * 60)
    assert await house.broker.confirm(TURN, wanted())
    await trio.sleep(2 * 60)
    assert not await house.broker.confirm(TURN, wanted())
    assert "15 minutes" in house.told("ask")[-1]["again"]


@pytest.mark.trio
async def test_approved_but_not_begun_at_a_crash_still_stands(autojump_clock: MockClock) -> None:
    house = House()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        house.answer("approve")
        await verdict(house)
        await house.restart(nursery)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        assert (await verdict(house)).approved
        assert len(house.told("ask")) == len(house.told("verdict")) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_tightened_policy_is_heeded_up_to_the_beginning_of_the_call(
    house: House, autojump_clock: MockClock
) -> None:
    house.fold(draft("session", event="policy", policy="all"))
    await asked(house)
    assert (await verdict(house)).reason == "policy"
    house.fold(draft("session", event="policy", policy="ask"))
    assert not await house.broker.confirm(TURN, wanted())
    assert len(house.told("ask")) == 1


@pytest.mark.trio
async def test_a_parked_ask_frees_the_turn_and_waits_for_a_day(house: House, autojump_clock: MockClock) -> None:
    house.present = False
    await asked(house)
    house.park()
    began = trio.current_time()
    with pytest.raises(Parked):
        await verdict(house)
    parked = house.told("ask")[-1]
    assert (parked["parked"], parked["seconds"]) == (True, 24 * 3600)
    [item] = [item for item in house.notebook.cells["c"].story.items if item["t"] == "ask"]
    assert item["parked"]
    await trio.sleep(23 * 3600)  # nobody there: that is what parking says
    assert house.told("verdict") == []
    await trio.sleep(3600 + 1)
    assert house.runs()[-1] == "resumed"
    assert house.told("verdict")[0]["reason"] == "timeout"
    await asked(house)
    given = await verdict(house)
    assert "24 h" in given.text
    assert trio.current_time() - began < 24 * 3600 + 10


@pytest.mark.trio
async def test_a_turn_that_yielded_goes_on_with_its_first_answer_though_others_are_open(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house, wanted(), wanted("touch other", "k2"))
    house.park()
    with pytest.raises(Parked):
        await verdict(house)
    house.fold(draft("run", event="yielded", run_id="r", cell_id="c", waits_for="ask"))
    assert house.notebook.runs["r"].parked
    house.answer("approve", ask=house.told("ask")[0]["ask"])
    await trio.testing.wait_all_tasks_blocked()
    assert (await verdict(house)).approved
    run = house.notebook.runs["r"]
    assert (run.state, run.parked) == ("waiting", False)


@pytest.mark.trio
async def test_a_parked_ask_survives_a_restart_and_its_answer_takes_the_turn_up(autojump_clock: MockClock) -> None:
    house = House()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        house.park()
        with pytest.raises(Parked):
            await verdict(house)
        await house.restart(nursery)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.broker.run)
        await asked(house)
        with pytest.raises(Parked):
            await verdict(house)
        await trio.sleep(3600)
        house.answer("approve")
        await trio.testing.wait_all_tasks_blocked()
        assert house.runs()[-1] == "resumed"
        await asked(house)
        assert (await verdict(house)).approved
        assert len(house.told("ask")) == 2  # asked, and parked
        nursery.cancel_scope.cancel()


def _goes_on(house: House, by: str = "owner") -> Asker:
    """The turn ended at its denied step, and a person goes on with it."""
    house.fold(
        draft("run", event="ended", run_id="r", cell_id="c", status="error", reason="denied", step=3),
        draft("run", event="queued", run_id="r2", cell_id="c", by=by, follows="r", step=3),
        draft("run", event="started", run_id="r2", cell_id="c"),
    )
    return Asker("r2", "c")


@pytest.mark.trio
async def test_going_on_approves_what_silence_had_denied_exactly_and_once(
    house: House, autojump_clock: MockClock
) -> None:
    await asked(house)
    assert (await verdict(house)).reason == "timeout"
    turn = _goes_on(house)
    await house.broker.decide(turn, [wanted(call="k7")])
    given = await verdict(house, "k7")
    assert (given.verdict, given.reason, given.by) == ("approve", "person", "owner")
    asks = house.told("ask")
    assert asks[1]["reconsiders"] == asks[0]["ask"]
    await house.broker.decide(turn, [wanted(call="k8")])
    await trio.testing.wait_all_tasks_blocked()
    assert house.asks[house.told("ask")[-1]["ask"]].open
    assert len(house.told("verdict")) == 2


@pytest.mark.trio
async def test_going_on_does_not_approve_what_changed_since(house: House, autojump_clock: MockClock) -> None:
    await asked(house, wanted(facts=["sha 1"]))
    await verdict(house)
    await house.broker.decide(_goes_on(house), [wanted(call="k7", facts=["sha 2"])])
    await trio.testing.wait_all_tasks_blocked()
    assert len(house.told("verdict")) == 1


@pytest.mark.trio
async def test_a_stopped_ask_is_not_approved_by_going_on(house: House, autojump_clock: MockClock) -> None:
    await asked(house)
    await house.broker.cancel("r")
    await house.broker.decide(_goes_on(house), [wanted(call="k7")])
    await trio.testing.wait_all_tasks_blocked()
    assert house.asks[house.told("ask")[-1]["ask"]].open


@pytest.mark.trio
async def test_what_is_too_large_for_a_card_says_how_much_it_leaves_out(
    house: House, autojump_clock: MockClock
) -> None:
    big = "x" * 400_000
    large = Wanted(Call("k1", "shell", {}), Description("t", big, diff=big), "run", "d")
    await asked(house, large)
    [ask] = house.told("ask")
    assert len(ask["command"]) < 30_000
    assert "characters not shown" in ask["command"]
