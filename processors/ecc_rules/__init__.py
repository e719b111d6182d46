"""Will this GPU's memory fail soon, by the thresholds that vendors and operators publish?"""
