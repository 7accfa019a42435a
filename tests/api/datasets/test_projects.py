"""Data sets belong to the project of the key that has uploaded them."""

import httpx

from store.keys import Scope
from tests.api.datasets.conftest import sft_lines
from tests.api.keyed import Keyed

LINES = {"content-type": "application/x-ndjson"}


def upload(client: httpx.Client) -> httpx.Response:
    return client.post("/datasets", content=sft_lines(), headers=LINES)


def test_projects_do_not_see_each_others_data(keyed: Keyed) -> None:
    keyed.project("north")
    keyed.project("south")
    with keyed.client("north") as north, keyed.client("south") as south:
        made = upload(north).json()
        assert made["project"] == "north"
        for below in ("", "/records", "/files/train", "/statistics?model=x"):
            assert south.get(f"/datasets/{made['id']}{below}").status_code == 404
        assert south.delete(f"/datasets/{made['id']}").status_code == 404
        assert south.get("/datasets").json()["items"] == []
        assert south.post("/datasets/validate", content=sft_lines(), headers=LINES).json()["known"] is None
        own = upload(south)
        assert (own.status_code, own.json()["sha256"]) == (201, made["sha256"])
        assert own.json()["id"] != made["id"]
        assert south.delete(f"/datasets/{own.json()['id']}").status_code == 204
        assert north.get(f"/datasets/{made['id']}/files/train").content == sft_lines()


def test_an_administrator_sees_the_data_of_all(keyed: Keyed) -> None:
    keyed.project("north")
    with keyed.client("north") as north, keyed.client(scopes=[Scope.admin]) as admin:
        made = upload(north).json()
        assert admin.get("/datasets").json()["items"] == [made]
        assert admin.get(f"/datasets/{made['id']}/files/train").status_code == 200


def test_a_key_that_only_reads_stores_nothing(keyed: Keyed) -> None:
    with keyed.client(scopes=[Scope.read]) as reader:
        assert upload(reader).status_code == 403
        assert reader.get("/datasets").json()["items"] == []
