mod heads;
mod hellos;
mod made;
mod reading;
