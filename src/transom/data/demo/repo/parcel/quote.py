"""The price of a shipment."""

from dataclasses import dataclass

from parcel import rates


class TooHeavy(ValueError):
    """A parcel that nobody carries."""


@dataclass(frozen=True)
class Shipment:
    zone: str
    grams: tuple
    express: bool = False


def kilograms(grams):
    if grams > rates.HEAVIEST_GRAMS:
        raise TooHeavy(f"{grams} g; at most {rates.HEAVIEST_GRAMS} g")
    return max(1, grams // 1000)


def parcel_price(zone, grams):
    price = rates.BASE[zone] + rates.PER_KILOGRAM[zone] * kilograms(grams)
    if zone == "island":
        price += rates.ISLAND_SURCHARGE
    return price


def quote(shipment):
    price = sum(parcel_price(shipment.zone, grams) for grams in shipment.grams)
    if len(shipment.grams) > rates.BULK_PARCELS:
        price -= price * rates.BULK_PERCENT // 100
    if shipment.express:
        price = price * (100 + rates.EXPRESS_PERCENT) // 100
    return price
