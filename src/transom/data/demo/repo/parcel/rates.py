"""The rates of each zone, in cents."""

BASE = {"city": 290, "country": 420, "island": 610}
PER_KILOGRAM = {"city": 55, "country": 80, "island": 135}

ISLAND_SURCHARGE = 450
EXPRESS_PERCENT = 30
BULK_PARCELS = 5
BULK_PERCENT = 10
HEAVIEST_GRAMS = 31_500
