from shop import ids, label, make_model, numbers

print(make_model().fit(1, [(ids, numbers, label)]).steps)
