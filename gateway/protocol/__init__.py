"""Pure: what travels on the wire, without the wire: JSON, JSON-RPC, header rules, versions, one package per wire."""
