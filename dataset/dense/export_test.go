package dense

var ByCost = byCost
