import unittest

from parcel.quote import Shipment, TooHeavy, kilograms, quote


class Weight(unittest.TestCase):
    def test_a_started_kilogram_is_a_whole_one(self):
        self.assertEqual([kilograms(grams) for grams in (1, 999, 1000, 1001, 2500)], [1, 1, 1, 2, 3])

    def test_a_heavy_parcel_is_refused(self):
        self.assertEqual(kilograms(31_500), 32)
        with self.assertRaises(TooHeavy):
            kilograms(31_501)


class Price(unittest.TestCase):
    def test_a_parcel_in_the_city(self):
        self.assertEqual(quote(Shipment("city", (700,))), 345)

    def test_express_is_rounded_half_up(self):
        self.assertEqual(quote(Shipment("city", (700,), express=True)), 449)

    def test_an_island_pays_its_surcharge_once(self):
        self.assertEqual(quote(Shipment("island", (900, 900))), 1940)

    def test_express_does_not_change_the_surcharge(self):
        self.assertEqual(quote(Shipment("island", (900,), express=True)), 1419)

    def test_five_parcels_are_cheaper(self):
        self.assertEqual(quote(Shipment("country", (500,) * 5)), 2250)
