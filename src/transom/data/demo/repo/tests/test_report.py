import unittest

from parcel.quote import Shipment
from parcel.report import report


class Report(unittest.TestCase):
    def test_the_largest_turnover_stands_first(self):
        sent = [Shipment("city", (700,)), Shipment("island", (900,)), Shipment("country", (700,) * 2)]
        zones = [line.split()[0] for line in report(sent).splitlines()]
        self.assertEqual(zones, ["island", "country", "city", "sum"])
