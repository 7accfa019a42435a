"""Training on several processes: their topology, their groups, and what is split over them."""
