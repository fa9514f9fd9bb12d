"""Positions in trees and graphs of the source sentence, and in the word order of another language."""
