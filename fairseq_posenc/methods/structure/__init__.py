"""Positions in trees and graphs of the source sentence, and in the order of another language."""
