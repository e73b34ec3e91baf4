"""Pure: the replay engine. One leg of a call is (function, journal, fresh answers, host) → outcome."""
