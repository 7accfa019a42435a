"""Hosts in the browser, and keys: who has none is asked, and who may not do something is told."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from store.keys import Scope, create_key
from tests.browser.served import Served, served


def test_a_key_is_asked_for_and_hosts_are_cordoned_by_administrators_alone(
    open_page: Callable[..., Page], service: Served
) -> None:
    with served(service.settings.model_copy(update={"api_keys_required": True})) as keyed:
        with keyed.database.transaction() as session:
            reader = create_key(session, "default", "reader", [Scope.read])[1]
            boss = create_key(session, "default", "boss", [Scope.admin])[1]
        keyed.host("quay-9", devices=2, labels={"rack": "9"}, info={"regatta": "0.1.0"})
        page = open_page(f"{keyed.url}/#/hosts")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Key").fill("rgt_wrong")
        dialog.get_by_role("button", name="Use key").click()
        expect(dialog).to_contain_text("The key is unknown")
        dialog.get_by_label("Key").fill(reader)
        dialog.get_by_role("button", name="Use key").click()
        host = page.get_by_role("article", name="quay-9")
        expect(host.locator(".host-state")).to_have_text("ready")
        expect(host).to_contain_text("rack: 9")
        expect(host.locator(".device.free")).to_have_count(2)

        page.get_by_role("button", name="Cordon quay-9").click()
        dialog.get_by_role("button", name="Cordon").click()
        expect(dialog.locator(".problem")).to_contain_text("admin")
        dialog.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Forget key").click()
        dialog.get_by_label("Key").fill(boss)
        dialog.get_by_role("button", name="Use key").click()
        page.get_by_role("button", name="Cordon quay-9").click()
        dialog.get_by_label("Why").fill("a fan is noisy")
        dialog.get_by_role("button", name="Cordon").click()
        expect(host.locator(".host-state")).to_have_text("cordoned")
        expect(host).to_contain_text("a fan is noisy")
        page.get_by_role("button", name="Uncordon quay-9").click()
        dialog.get_by_role("button", name="Uncordon").click()
        expect(host.locator(".host-state")).to_have_text("ready")
