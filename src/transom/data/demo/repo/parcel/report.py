"""The turnover of a month, zone by zone."""

from parcel.quote import quote


def turnover(shipments):
    total = {}
    for shipment in shipments:
        total[shipment.zone] = total.get(shipment.zone, 0) + quote(shipment)
    return total


def report(shipments):
    total = turnover(shipments)
    lines = [f"{zone:<8} {cents:>9}" for zone, cents in sorted(total.items())]
    return "\n".join([*lines, f"{'sum':<8} {sum(total.values()):>9}"])
