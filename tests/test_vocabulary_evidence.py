"""Being mapped is not being right: the vocabulary beside what replays, and others, say."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sc2gym import vocabulary
from sc2gym.replay import Replay

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import vocabulary_evidence as tool

# Its units are referred to by wrong ids, so what is selected is not what is meant.
_BAD_IDS = "2.0.11.26825-bad-unit-ids.SC2Replay"
# Below three quarters of the commands of these abilities are followed: crawlers, tumors and traps
# that found no place or were clicked twice, spells without the energy for them, units without the
# money; and of the changelings some come of Overseers that we take for not selected.
_SELDOM = {
    "Build StasisTrap": 0.4,
    "Build SpineCrawler": 0.55,
    "Build CreepTumor Tumor": 0.65,
    "Effect SpawnChangeling": 0.25,
    "Hallucination Phoenix": 0.5,
    "Train Ultralisk": 0.6,
}


@pytest.fixture(scope="module")
def shown(data_dir):
    found = tool.of_folder(data_dir / "replays")
    assert len(found) >= 22
    del found[_BAD_IDS]
    return found


@pytest.fixture(scope="module")
def whole(shown):
    evidence = tool.Evidence()
    for of_file in shown.values():
        evidence.add(of_file)
    return evidence


def test_products_follow_commands_in_every_file(shown):
    names = vocabulary.ability_names()
    shares = {}
    for name, evidence in shown.items():
        commands = sum(evidence.commands[key] for key in evidence.of_products)
        never = {names[evidence.ability[k]]: evidence.commands[k] for k in evidence.not_followed}
        print(f"{name}: {evidence.agreement:.1%} of {commands}; never: {never}")
        if commands >= 15:
            shares[name] = evidence.agreement
    assert len(shares) >= 19 and min(shares.values()) > 0.87, shares


def test_products_follow_commands_of_every_name(whole):
    commands, followed = Counter(), Counter()
    for key in whole.of_products:
        name = vocabulary.ability_names()[whole.ability[key]]
        commands[name] += whole.commands[key]
        followed[name] += whole.followed[key]
    assert commands.total() > 8000 and followed.total() / commands.total() > 0.94
    shares = {name: followed[name] / count for name, count in commands.items() if count >= 10}
    print(dict(sorted(shares.items(), key=lambda item: item[1])))
    assert len(shares) > 70
    seldom = {n: s for n, s in shares.items() if s < _SELDOM.get(n, 0.75)}
    assert not seldom


def test_what_follows_tells_the_product(whole):
    # From times and places alone, without the vocabulary: the product of each command given
    # five times or more, among all unit types and upgrades.
    learned, makes = whole.learned(), tool.products()
    often = [key for key in whole.of_products if whole.commands[key] >= 5]
    ranks = []
    for key in often:
        right = [product in makes[whole.ability[key]] for product in learned.get(key, ())]
        ranks.append(right.index(True) if True in right else 99)
        if ranks[-1]:
            print(key, vocabulary.ability_names()[whole.ability[key]], learned.get(key, ())[:3])
    assert len(often) > 200
    assert np.mean([rank == 0 for rank in ranks]) > 0.9
    assert np.mean([rank < 3 for rank in ranks]) > 0.97


def test_births_name_the_link_of_their_command(whole):
    # Since 4.1 the tracker stream says which ability made a unit, by the name of its link.
    agree, other = 0, Counter()
    for (key, name), births in whole.creators.items():
        if vocabulary.abilities(key[0]).links.get(key[1]) == name:
            agree += births
        else:
            other[key, name] += births
    print(agree, other)
    assert agree > 3500 and other.total() / agree < 0.002


def _shuffled():
    makes = np.array(sorted(tool.products()))
    order = np.random.default_rng(0).permutation(len(makes))
    return dict(zip(makes[order].tolist(), np.roll(makes[order], 1).tolist(), strict=True))


def _moved():
    # Each index of a link means what the next one should.
    by_link: dict[str, list[int]] = {}
    for ability, link, _, _, _ in sorted(vocabulary._ability_rows(), key=lambda row: row[2]):
        if ability in tool.products():
            by_link.setdefault(link, []).append(ability)
    rings = [ring for ring in by_link.values() if len(ring) > 1]
    return {a: b for ring in rings for a, b in zip(ring, ring[1:] + ring[:1], strict=True)}


@pytest.mark.parametrize(("wrong", "most"), [(_shuffled, 0.05), (_moved, 0.3)])
def test_a_wrong_vocabulary_is_found_out(shown, pysc2_replays, wrong, most):
    mapping, controls = wrong(), tool.Evidence()
    for path in pysc2_replays:
        controls.add(tool.evidence(Replay.open(path), mapping))
    changed = set(mapping.values())
    keys = [key for key in controls.of_products if controls.ability[key] in changed]
    commands = sum(controls.commands[key] for key in keys)
    followed = sum(controls.followed[key] for key in keys)
    print(followed, commands)
    assert commands > 1000 and followed / commands < most
