"""The requests and the descriptors that the proxies of sandboxes keep."""

import pytest

pytest.importorskip("h11")

from fastaudit_rs.sandbox.host.egress.log import KEPT, Log


class TestRequests:
    def told(self, log):
        found = [(each.host, each.verdict) for each in log.taken(wait=False)]
        return found, log.left_out

    @pytest.mark.parametrize("are_late", [False, True])
    def test_denied_ones_hide_no_others(self, are_late):
        """Neither those that are denied at once, nor those that began."""
        log = Log()
        for number in range(3 * KEPT):
            if are_late:
                log.begin(f"{number}.test", 80).rule = "network.hosts"
            else:
                log.deny(f"{number}.test", None, "network.hosts")
        log.begin("good.test", 80)
        found, left_out = self.told(log)
        assert found[-1] == ("good.test", "allowed") and found[0] == ("0.test", "denied")
        assert len(found) <= 2 * KEPT and len(found) + left_out == 3 * KEPT + 1

    def test_allowed_ones_hide_no_others(self):
        log = Log()
        for number in range(KEPT + 5):
            log.begin(f"{number}.test", 80)
        log.deny("bad.test", None, "network.hosts")
        found, left_out = self.told(log)
        assert len(found) == KEPT + 1 and found[-1] == ("bad.test", "denied") and left_out == 5
        assert self.told(log) == ([], 0)
