# Read names, one per line. If a name is a word in `other`, print "NAME -". If it is similar to a word in `own`, print "NAME WORD"
# with the most similar word. Names that are words in `own` or in `ordinary` are skipped.

BEGIN {
  count = split(own, options, " ")
  for (i = 1; i <= count; i++) known[options[i]] = 1
  size = split(other, words, " ")
  for (i = 1; i <= size; i++) foreign[words[i]] = 1
  size = split(ordinary, words, " ")
  for (i = 1; i <= size; i++) known[words[i]] = 1
}

!/^[A-Z][A-Z0-9_]*$/ || $0 in known { next }

$0 in foreign { print $0, "-"; next }

{
  best = ""
  for (i = 1; i <= count; i++) {
    shorter = length($0) < length(options[i]) ? length($0) : length(options[i])
    limit = shorter < 3 ? 0 : shorter < 8 ? 1 : 2 # maximum edit distance
    found = distance($0, options[i], limit)
    if (found <= limit && (best == "" || found < least)) { best = options[i]; least = found }
  }
  if (best != "") print $0, best
}

# Return the edit distance: the number of insertions, deletions, replacements, and exchanges of neighbouring characters. If the
# lengths differ by more than `limit`, return `limit` + 1.
function distance(one, two, limit,    i, j, m, n, table, cost, least) {
  m = length(one); n = length(two)
  if (m - n > limit || n - m > limit) return limit + 1
  for (i = 0; i <= m; i++) table[i, 0] = i
  for (j = 0; j <= n; j++) table[0, j] = j
  for (i = 1; i <= m; i++)
    for (j = 1; j <= n; j++) {
      cost = substr(one, i, 1) != substr(two, j, 1)
      least = table[i - 1, j - 1] + cost
      if (table[i - 1, j] + 1 < least) least = table[i - 1, j] + 1
      if (table[i, j - 1] + 1 < least) least = table[i, j - 1] + 1
      if (i > 1 && j > 1 && substr(one, i, 1) == substr(two, j - 1, 1) && substr(one, i - 1, 1) == substr(two, j, 1) \
          && table[i - 2, j - 2] + 1 < least) least = table[i - 2, j - 2] + 1
      table[i, j] = least
    }
  return table[m, n]
}
