"""The conformance kit: rules of MRC as scripted exchanges, held against an implementation."""
