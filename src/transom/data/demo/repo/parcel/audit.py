"""Every price from 100 g to the heaviest parcel, for a look by eye: python3 -m parcel.audit"""

from parcel import rates
from parcel.quote import Shipment, quote


def main():
    for zone in rates.BASE:
        for grams in range(100, rates.HEAVIEST_GRAMS + 1, 100):
            plain, fast = (quote(Shipment(zone, (grams,), express)) for express in (False, True))
            print(f"{zone:<8} {grams:>6} g  plain {plain:>5}  express {fast:>5}")


if __name__ == "__main__":
    main()
