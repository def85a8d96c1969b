"""What a shipment costs. SPEC.md is the customer's word."""
