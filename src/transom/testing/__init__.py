"""What tests and the lab share: conformance kits, strategies, builders."""
